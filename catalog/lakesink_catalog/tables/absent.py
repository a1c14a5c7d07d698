"""Why a table is missing: a view has its name, or the database has the table under another catalog's name."""

from contextlib import suppress

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from sqlalchemy import Select, select
from sqlalchemy.orm import Session


def is_view(catalog: Catalog, parts: tuple[str, ...]) -> bool:
    """True if a view has this name; False if that is unknown."""
    with suppress(Exception):  # a hint must not hide the error that it explains
        if isinstance(catalog, SqlCatalog):
            with Session(catalog.engine) as session:
                kind = _named(parts).where(IcebergTables.catalog_name == catalog.name)
                return session.scalar(kind.with_only_columns(IcebergTables.iceberg_type)) == "VIEW"
        return catalog.view_exists(parts)
    return False


def other_catalogs(catalog: Catalog, parts: tuple[str, ...]) -> list[str]:
    """Names of other catalogs in the same database that have the table, because an engine used another catalog name."""
    with suppress(Exception):  # a hint must not hide an error
        if isinstance(catalog, SqlCatalog):
            with Session(catalog.engine) as session:
                return sorted({str(name) for name in session.scalars(_named(parts))} - {catalog.name})
    return []


def _named(parts: tuple[str, ...]) -> Select[str]:
    return select(IcebergTables.catalog_name).where(
        IcebergTables.table_namespace == ".".join(parts[:-1]), IcebergTables.table_name == parts[-1]
    )
