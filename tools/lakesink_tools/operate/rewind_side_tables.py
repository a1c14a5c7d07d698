"""Sets tables of dead letters and changelogs back after a rollback of the table of their sink.

What they have of batches that the table lacks must go before these batches run again: readers would see it twice. Each
table is set back by one commit that asserts the head that was looked at, or is dropped if it has nothing else: no file
is deleted. A command that was interrupted is completed by the next run.
"""

from collections.abc import Sequence
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate

from lakesink.sinks.iceberg.side.side_batches import WayBack
from lakesink.sinks.iceberg.side.side_rollback import left_of
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.connect.catalog_failures import translated
from lakesink_catalog.read.history import keys_of_ledger
from lakesink_catalog.read.view import view_table
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import QueryError
from lakesink_protocol.identity import MAIN_BRANCH


class RewindableSideTables:
    """The side tables of the sink that a query writes."""

    def __init__(self, table: str, catalog: str | None) -> None:
        self._name = table
        self._catalog = connect(catalog, create=False)

    def plan(self, query_id: str) -> Sequence[WayBack]:
        """The ways back for all that side tables have of batches that the table lacks; changes nothing.

        Raises a QueryError if the query does not write this table, or if a way back would take other batches out too.
        """
        table = load_table(self._catalog, self._name)
        entries = {key: view_table(table, key).entry for key in keys_of_ledger(table)}
        sinks = [key for key, entry in entries.items() if entry is not None and entry.query_id == query_id]
        if not sinks:
            raise QueryError(
                "REWIND_REFUSED",
                f"No sink of {self._name} has batches of the query of this checkpoint.",
                action="Name the table that the query writes; lakesink status shows the sinks of a table.",
            )
        ways: list[WayBack] = []
        for left in (left for key in sinks for left in left_of(table, key)):
            if left.ways is None:
                raise QueryError("REWIND_REFUSED", left.said, action=left.step)
            ways.extend(left.ways)
        return ways

    def rewind(self, ways: Sequence[WayBack]) -> None:
        """Go these ways; raises a QueryError if a table has changed since the plan."""
        for way in ways:
            name = ".".join(way.side.name())
            translated(f"The table {name}", self._catalog.properties, partial(_go, self._catalog, name, way))


def _go(catalog: Catalog, name: str, way: WayBack) -> None:
    seen, now = way.side.metadata, load_table(catalog, name)
    if (seen.table_uuid, seen.refs.get(MAIN_BRANCH)) != (now.metadata.table_uuid, now.metadata.refs.get(MAIN_BRANCH)):
        raise QueryError.of("REWIND_REFUSED.changed_meanwhile", name=name)
    if way.snapshot_id is None:
        catalog.drop_table(name)
        return
    head = seen.refs[MAIN_BRANCH]
    requirements = (
        AssertTableUUID(uuid=seen.table_uuid),
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=head.snapshot_id),
    )
    back = head.model_copy(update={"snapshot_id": way.snapshot_id})
    update = SetSnapshotRefUpdate(ref_name=MAIN_BRANCH, **back.model_dump(by_alias=True, exclude_none=True))
    try:
        catalog.commit_table(now, requirements, (update,))
    except CommitFailedException:
        raise QueryError.of("REWIND_REFUSED.changed_meanwhile", name=name) from None
