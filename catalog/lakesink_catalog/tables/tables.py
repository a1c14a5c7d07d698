"""Loads tables, and creates a table once, even if several drivers try."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pyiceberg import exceptions
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from lakesink_catalog.connect.catalog_failures import asking
from lakesink_catalog.tables.partition_by import parse_partition_by, parse_sort_by
from lakesink_protocol.errors import CatalogError, SettingsError
from lakesink_protocol.suggest import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_VERSION = "2"
TABLE_MISSING = "LAKESINK_TABLE_MISSING"
MAX_NAME_LENGTH = 255
_FORBIDDEN_IN_NAMES = frozenset("*?'\"`/\\#;:%<>|")
_CODE_PROPERTIES = ("write.py-location-provider.impl", "py-io-impl")


def load_table(catalog: Catalog, identifier: str) -> Table:
    """Load the current table, without any cache.

    Args:
        catalog: A catalog from `connect`.
        identifier: ``namespace.table``; namespaces may nest.

    Raises:
        SettingsError: The identifier is malformed.
        CatalogError: ``TABLE_MISSING`` with the nearest name, ``TABLE_IS_VIEW``, or the catalog failed.
    """
    parts = parse_identifier(identifier)
    with suppress(exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError):
        return asking(catalog, lambda: catalog.load_table(parts))
    if _is_view(catalog, parts):
        raise CatalogError.of("TABLE_IS_VIEW", table=identifier, catalog=catalog.name)
    raise CatalogError.of("TABLE_MISSING", table=identifier, catalog=catalog.name, near=_near(catalog, parts))


def find_table(catalog: Catalog, identifier: str, load: Callable[[Catalog, str], Table] = load_table) -> Table | None:
    """What `load` returns; None if there is no table of this name."""
    try:
        return load(catalog, identifier)
    except CatalogError as error:
        if error.code != TABLE_MISSING:
            raise
    return None


def create_table(
    catalog: Catalog,
    identifier: str,
    columns: "pa.Schema | Schema",
    partition_by: str | None = None,
    properties: Mapping[str, str] | None = None,
    keys: Sequence[str] = (),
    sort_by: str | None = None,
) -> Table:
    """Create a format version 2 table, and its namespace if it is missing; loads the table if another driver was first.

    Args:
        catalog: A catalog from `connect`.
        identifier: ``namespace.table``.
        columns: Columns. Those of an Arrow schema, all but the keys, become optional, see `iceberg_schema`.
        partition_by: See `parse_partition_by`.
        properties: Table properties.
        keys: Columns that become required, and the table's identifier fields.
        sort_by: See `parse_sort_by`.

    Raises:
        SettingsError: Identifier, partitioning or sort order is malformed.
        WriteError: A column has no Iceberg type.
        CatalogError: A property is not allowed, the catalog failed, or its warehouse cannot be written.
    """
    from lakesink_catalog.connect.first_snapshot import protects_first_snapshots  # noqa: PLC0415 - readers create none
    from lakesink_catalog.tables.arrow_schema import iceberg_schema, with_identifier_fields  # noqa: PLC0415 - readers need no PyArrow

    parts = parse_identifier(identifier)
    wanted = dict(properties or {})
    _check_properties(wanted)
    schema = columns if isinstance(columns, Schema) else iceberg_schema(columns)
    if keys:
        schema = with_identifier_fields(schema, keys)
    spec, order = parse_partition_by(partition_by, schema), parse_sort_by(sort_by, schema)
    for depth in range(1, len(parts)):
        _create_namespace(catalog, parts[:depth])
    wanted["format-version"] = FORMAT_VERSION
    is_protected = protects_first_snapshots(catalog, parts[:-1])
    create = catalog.create_table if is_protected else partial(_created_with_a_snapshot, catalog)
    with suppress(exceptions.TableAlreadyExistsError):
        return asking(catalog, lambda: create(parts, schema, partition_spec=spec, sort_order=order, properties=wanted))
    return load_table(catalog, identifier)


def _created_with_a_snapshot(catalog: Catalog, parts: tuple[str, ...], schema: Schema, **asked: Any) -> Table:
    """In one request with its first snapshot, without rows: every later commit then asserts a head."""
    creation = catalog.create_table_transaction(parts, schema, **asked)
    creation.append(creation.table_metadata.schema().as_arrow().empty_table())
    try:
        creation.commit_transaction()
    except exceptions.CommitFailedException:  # usually another driver was first
        if not catalog.table_exists(parts):
            raise
    return catalog.load_table(parts)


def parse_identifier(text: object) -> tuple[str, ...]:
    """The parts of ``namespace.table``: at least two, none empty, no wildcards, quotes, slashes or control characters.

    Raises:
        SettingsError: The identifier is malformed.
    """
    if not isinstance(text, str):
        raise _malformed(repr(text), "it is not a string")
    parts = tuple(text.split("."))
    if len(parts) < 2:
        raise _malformed(text, "it needs a namespace")
    for part in parts:
        if not part or part != part.strip():
            raise _malformed(text, "a part is empty or padded with blanks")
        if len(part) > MAX_NAME_LENGTH:
            raise _malformed(text, f"a part is longer than {MAX_NAME_LENGTH} characters")
        bad = next((char for char in part if char in _FORBIDDEN_IN_NAMES or not char.isprintable()), None)
        if bad is not None:
            raise _malformed(text, f"it must not contain {bad!r}")
    return parts


def _create_namespace(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    if asking(catalog, lambda: catalog.namespace_exists(namespace)):
        return
    with suppress(exceptions.NamespaceAlreadyExistsError):
        try:
            asking(catalog, lambda: catalog.create_namespace(namespace))
        except CatalogError:  # PyIceberg's SQL catalog raises the database's error if another driver was first
            if not asking(catalog, lambda: catalog.namespace_exists(namespace)):
                raise


def _check_properties(properties: Mapping[str, str]) -> None:
    version = properties.get("format-version", FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise CatalogError.of("FORMAT_UNSUPPORTED", version=version)
    for name in _CODE_PROPERTIES:
        if name in properties:
            raise CatalogError.of("TABLE_NAMES_CODE.requested", name=name)


def _near(catalog: Catalog, parts: tuple[str, ...]) -> str:
    # Names of other catalogs in the same database that have the table, because an engine used another catalog name.
    others: list[str] = []
    with suppress(Exception):  # a hint must not hide the error that it explains
        if isinstance(catalog, SqlCatalog):
            with Session(catalog.engine) as session:
                others = sorted({str(name) for name in session.scalars(_rows_named(parts))} - {catalog.name})
    if others:
        return (
            f" The database has this table under the catalog name {', '.join(others)}. SQL catalogs store the name in"
            " every row, so all engines must use the same catalog name."
        )
    with suppress(Exception):
        tables = [".".join(found) for found in catalog.list_tables(parts[:-1])]
        if tables:
            return f" {did_you_mean('.'.join(parts), tables)}"
    with suppress(Exception):
        namespaces = [".".join(found) for found in catalog.list_namespaces()]
        return f" Namespaces there: {', '.join(sorted(namespaces)[:20]) or 'none'}."
    return ""


def _is_view(catalog: Catalog, parts: tuple[str, ...]) -> bool:
    """True if a view has this name; False if that is unknown."""
    with suppress(Exception):  # a hint must not hide the error that it explains
        if isinstance(catalog, SqlCatalog):
            with Session(catalog.engine) as session:
                kind = _rows_named(parts).where(IcebergTables.catalog_name == catalog.name)
                return session.scalar(kind.with_only_columns(IcebergTables.iceberg_type)) == "VIEW"
        return catalog.view_exists(parts)
    return False


def _rows_named(parts: tuple[str, ...]) -> Select[str]:
    return select(IcebergTables.catalog_name).where(
        IcebergTables.table_namespace == ".".join(parts[:-1]), IcebergTables.table_name == parts[-1]
    )


def _malformed(text: str, why: str) -> SettingsError:
    return SettingsError.of("TABLE_NAME_INVALID", name=text if len(text) <= 80 else f"{text[:77]}...", why=why)
