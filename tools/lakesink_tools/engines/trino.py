"""Trino's Iceberg connector. Pure."""

import re

from lakesink_protocol.errors import CatalogError
from lakesink_tools.engines.recipe import File, Query, Recipe, first_queries, newest_batches, properties_file, quoted
from lakesink_tools.engines.recipe_input import SQLITE_DRIVER, Rest, Target
from lakesink_tools.past.resolve_snapshot import id_for_trino

ENGINE = "Trino 476"
_REST_NAMES = {"prefix": "iceberg.rest-catalog.prefix", "scope": "iceberg.rest-catalog.oauth2.scope"} | {
    "oauth2-server-uri": "iceberg.rest-catalog.oauth2.server-uri",
    "token": "iceberg.rest-catalog.oauth2.token",
    "credential": "iceberg.rest-catalog.oauth2.credential",
}


def recipe(target: Target) -> Recipe:
    """A catalog's properties file, and queries; raises a `CatalogError` for a name that Trino cannot express."""
    nested = target.is_sql and len(target.parts) > 2
    if nested or any(part != part.lower() for part in target.parts):
        why = "its SQL catalogs support one namespace only" if nested else "it changes every name to lower case"
        raise CatalogError.of("NAME_UNREADABLE", table=".".join(target.parts), why=why)
    # Trino names a catalog after its file, in lower case.
    name = re.sub(r"[^a-z0-9_]", "_", target.catalog.lower())
    storage = {"fs.native-local.enabled": "true", "local.location": "/"} if target.on_disk else {}
    if target.on_s3:
        storage["fs.native-s3.enabled"] = "true"
        storage |= {key: target.storage[key] for key in ("s3.endpoint", "s3.region") if key in target.storage}
        storage |= {"s3.path-style-access": "true"} if "s3.endpoint" in target.storage else {}
    is_sqlite = not isinstance(target.backend, Rest) and target.backend.driver == SQLITE_DRIVER
    jar = "-".join(SQLITE_DRIVER.split(":")[1:])
    driver = f"{jar}.jar in plugin/iceberg of every node; and all nodes on this machine: SQLite is a file"
    return Recipe(
        engine=ENGINE,
        needs=(*target.access, driver) if is_sqlite else target.access,
        files=(
            File(
                f"{name}.properties",
                "put it into etc/catalog of every node, and restart Trino",
                properties_file({"connector.name": "iceberg", **_catalog(target), **storage}),
            ),
        ),
        queries=_queries(target, name),
        notes=tuple(_notes(target)),
    )


def _catalog(target: Target) -> dict[str, str]:
    backend = target.backend
    if isinstance(backend, Rest):
        return _rest(target, backend)
    return {
        "iceberg.catalog.type": "jdbc",
        "iceberg.jdbc-catalog.driver-class": backend.driver_class,
        "iceberg.jdbc-catalog.connection-url": backend.jdbc,
        "iceberg.jdbc-catalog.catalog-name": target.catalog,
        "iceberg.jdbc-catalog.default-warehouse-dir": target.warehouse,
        "iceberg.jdbc-catalog.schema-version": "V1",
        **({"iceberg.jdbc-catalog.connection-user": backend.user} if backend.user else {}),
    }


def _rest(target: Target, rest: Rest) -> dict[str, str]:
    known = {_REST_NAMES[name]: value for name, value in rest.properties.items() if name in _REST_NAMES}
    secrets = {_REST_NAMES[key]: f"${{ENV:{name}}}" for key, name in rest.secrets.items() if key in _REST_NAMES}
    return {
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": rest.uri,
        **({"iceberg.rest-catalog.warehouse": target.warehouse} if target.warehouse else {}),
        **({"iceberg.rest-catalog.nested-namespace-enabled": "true"} if len(target.parts) > 2 else {}),
        **({"iceberg.rest-catalog.security": "OAUTH2"} if secrets else {}),
        **known,
        **secrets,
    }


def _notes(target: Target) -> list[str]:
    found = []
    if isinstance(target.backend, Rest):
        names = [*target.backend.properties, *target.backend.secrets]
        left = sorted(name for name in names if name not in _REST_NAMES)
        found = [f"Trino has no equivalent setting for {', '.join(left)}."] if left else []
    if target.on_disk:
        found.append("local.location=/ lets Trino read every file that its user may read.")
    return found


def _queries(target: Target, name: str) -> tuple[Query, ...]:
    *namespaces, table = target.parts
    schema = (name, ".".join(namespaces))
    snapshots = quoted((*schema, f"{table}$snapshots"), '"')
    return first_queries(
        target.moment,
        table=quoted((*schema, table), '"'),
        newest=newest_batches(snapshots, "element_at(summary, '{}')"),
        at_snapshot="FOR VERSION AS OF " + (id_for_trino(target.moment.snapshot_id) if target.moment else ""),
        at_tag="FOR VERSION AS OF {}",
    )
