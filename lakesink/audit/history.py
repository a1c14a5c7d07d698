"""The batches of a table, by the table's name. Only reads."""

from collections.abc import Mapping
from typing import Any

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import Record
from lakesink_catalog.read.history import history as history_of
from lakesink_catalog.tables.tables import load_table


def history(
    table: str,
    *,
    catalog: str | None = None,
    catalog_properties: Mapping[str, Any] | None = None,
    sink: str | None = None,
    branch: str | None = None,
) -> list[Record]:
    """List every batch that the retained snapshots of a table show, newest last.

    Args:
        table: Table identifier, ``namespace.table``.
        catalog: Name of a PyIceberg catalog; None for the configured default, else the embedded one.
        catalog_properties: Added to the configured properties; they take precedence.
        sink: Only this sink id or application id.
        branch: Only this branch.

    Raises:
        SettingsError: The identifier is malformed.
        CatalogError: The catalog is unusable, or has no such table.
    """
    loaded = load_table(connect(catalog, catalog_properties, create=False), table)
    return history_of(loaded, sink=sink, branch=branch)
