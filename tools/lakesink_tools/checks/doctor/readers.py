"""Which branches keep batches for reading queries, and which of these seem to be given up."""

from collections.abc import Iterator
from datetime import timedelta

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType

from lakesink.read.hold import LONGEST_HOLD_MS, PREFIX
from lakesink_catalog.words import counted, printable, span
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing

GIVEN_UP = timedelta(days=7)
"""A running reader moves its branch with what it reads, at most ten minutes later."""


def check_readers(identifier: str, table: Table) -> Iterator[Finding]:
    """One finding for each branch of a reading query; `identifier` as the user gave it."""
    for name, ref in sorted(table.metadata.refs.items()):
        if name.startswith(PREFIX) and ref.snapshot_ref_type is SnapshotRefType.BRANCH:
            yield _reader(identifier, table, name, ref)


def _reader(identifier: str, table: Table, name: str, ref: SnapshotRef) -> Finding:
    reader, behind = printable(name.removeprefix(PREFIX)), _behind(table, ref)
    kept = counted(ref.min_snapshots_to_keep, "snapshot")
    found = f"{reader} keeps {kept} from expiry, {span(behind)} behind the table"
    if behind < GIVEN_UP:
        return Finding(Part.TABLE, "readers", Standing.OK, found)
    days = timedelta(milliseconds=LONGEST_HOLD_MS).days
    fix = (
        f"Start the query with reader-id {reader} again. If it is given up, drop its branch: ALTER TABLE {identifier}"
        f" DROP BRANCH `{printable(name)}`. Expiry drops it after {days} days."
    )
    return Finding(Part.TABLE, "readers", Standing.WARNING, found, fix)


def _behind(table: Table, ref: SnapshotRef) -> timedelta:
    """How much older the branch's snapshot is than the table's."""
    kept, head = table.snapshot_by_id(ref.snapshot_id), table.current_snapshot()
    if kept is None or head is None:
        return timedelta()
    return timedelta(milliseconds=max(head.timestamp_ms - kept.timestamp_ms, 0))
