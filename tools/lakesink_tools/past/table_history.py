"""The batches of a table, by the table's name. Only reads."""

from collections.abc import Mapping
from typing import Any

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.words import counted
from lakesink_tools.past.html import page
from lakesink_tools.past.lean import load_to_read
from lakesink_tools.past.records import Record, row_of
from lakesink_tools.past.records import history as history_of


class History(list[Record]):
    """Batches, newest last: a list that a notebook shows as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """The batches as a notebook shows them."""
        columns = ("sink", "branch", "batch>", "rows>", "files>", "size>", "committed (UTC)", "outcome", "snapshot>")
        return page(counted(len(self), "batch"), columns, [[*row_of(one), str(one.snapshot_id)] for one in self])


def history(
    table: str,
    *,
    catalog: str | None = None,
    catalog_properties: Mapping[str, Any] | None = None,
    sink: str | None = None,
    branch: str | None = None,
) -> list[Record]:
    """List every batch that the retained snapshots of a table show, newest last. A notebook shows the list as a table.

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
    loaded = load_to_read(connect(catalog, catalog_properties, create=False), table)
    return History(history_of(loaded, sink=sink, branch=branch))
