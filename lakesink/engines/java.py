"""Common parts for Spark and Flink: properties of Iceberg's Java catalogs, and the jars that these need. Pure."""

from lakesink.engines.recipe import AWS_BUNDLE
from lakesink.engines.target import Rest, Target


def java_catalog(target: Target) -> dict[str, str]:
    """Properties of the catalog, without its type."""
    backend = target.backend
    if isinstance(backend, Rest):
        secrets = {key: f"env:{variable}" for key, variable in backend.secrets.items()}
        found = {"uri": backend.uri, **backend.properties, **secrets}
    else:
        user = {"jdbc.user": backend.user} if backend.user else {}
        found = {"uri": backend.jdbc, **user, "jdbc.schema-version": "V1"}
    if target.warehouse:
        found["warehouse"] = target.warehouse
    return found | _storage(target)


def jars(target: Target, iceberg: str) -> tuple[str, ...]:
    """Maven coordinates in addition to the runtime of this Iceberg version."""
    driver = () if isinstance(target.backend, Rest) else (target.backend.driver,)
    return (*driver, f"{AWS_BUNDLE}:{iceberg}") if target.on_s3 else driver


def _storage(target: Target) -> dict[str, str]:
    if not target.on_s3:
        return {}
    endpoint = {"s3.endpoint": target.storage["s3.endpoint"]} if "s3.endpoint" in target.storage else {}
    region = {"client.region": target.storage["s3.region"]} if "s3.region" in target.storage else {}
    # Servers with an endpoint of their own seldom have a host name for every bucket.
    path_style = {"s3.path-style-access": "true"} if endpoint else {}
    return {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **endpoint, **region, **path_style}
