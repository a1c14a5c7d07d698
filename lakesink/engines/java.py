"""Common parts for Spark and Flink: properties of Iceberg's Java catalogs, and the jars that these need. Pure."""

from typing import assert_never

from lakesink.engines.recipe import AWS_BUNDLE, POSTGRES_DRIVER, SQLITE_DRIVER
from lakesink.engines.target import Postgres, Rest, Sqlite, Target


def java_catalog(target: Target) -> dict[str, str]:
    """Properties of the catalog, without its type."""
    found = _catalog(target)
    if target.warehouse:
        found["warehouse"] = target.warehouse
    return found | _storage(target)


def jars(target: Target, iceberg: str) -> tuple[str, ...]:
    """Maven coordinates in addition to the runtime of this Iceberg version."""
    storage = (f"{AWS_BUNDLE}:{iceberg}",) if target.on_s3 else ()
    match target.backend:
        case Sqlite():
            return (SQLITE_DRIVER, *storage)
        case Postgres():
            return (POSTGRES_DRIVER, *storage)
        case Rest():
            return storage
        case _:
            assert_never(target.backend)


def _catalog(target: Target) -> dict[str, str]:
    match target.backend:
        case Sqlite():
            return {"uri": target.backend.jdbc, "jdbc.schema-version": "V1"}
        case Postgres(user=user):
            named = {"jdbc.user": user} if user else {}
            return {"uri": target.backend.jdbc, **named, "jdbc.schema-version": "V1"}
        case Rest(uri=uri, properties=properties, secrets=secrets):
            return {"uri": uri, **properties, **{key: f"env:{variable}" for key, variable in secrets.items()}}
        case _:
            assert_never(target.backend)


def _storage(target: Target) -> dict[str, str]:
    if not target.on_s3:
        return {}
    endpoint = {"s3.endpoint": target.storage["s3.endpoint"]} if "s3.endpoint" in target.storage else {}
    region = {"client.region": target.storage["s3.region"]} if "s3.region" in target.storage else {}
    # Servers with an endpoint of their own seldom have a host name for every bucket.
    path_style = {"s3.path-style-access": "true"} if endpoint else {}
    return {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **endpoint, **region, **path_style}
