"""Keeps the batches that a consumer has not read from expiry, by a branch of the table.

Iceberg's expiry keeps as many snapshots of a branch as its ``min-snapshots-to-keep`` says, whatever their age. The
branch stands at the head as the consumer saw it, and keeps the snapshots back to the first one that it has not read. A
tag would keep one snapshot only. Moving a branch is a commit of its own that no head-bound commit asserts.
"""

from collections.abc import Iterator
from itertools import islice

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate, TableRequirement

from lakesink_catalog.connect.catalog_failures import translated
from lakesink_catalog.read.history import keys_of_ledger
from lakesink_catalog.read.past import retained
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.quality import REPLAY
from lakesink_protocol.redact import describe

PREFIX = "lakesink-reader-"
LONGEST_HOLD_MS = 30 * 24 * 3_600_000
_NO_AGE_MS = 1


def readers(table: Table) -> Iterator[tuple[str, SinkKey, int]]:
    """Each reader id with its sink and the newest batch that it has read, or had read when it moved its branch last.

    A branch does not tell the sink, so there are none if several write to the table.
    """
    keys = [key for key in keys_of_ledger(table) if not key.name.startswith(REPLAY)]
    held = [(name, ref) for name, ref in table.metadata.refs.items() if name.startswith(PREFIX)]
    if len(keys) != 1 or not held:
        return
    past = retained(table)
    for name, ref in held:
        kept = islice(past.ancestry(ref.snapshot_id), ref.min_snapshots_to_keep or 0)
        unread = [one.batch_id for one in kept if one.mark is not None and one.mark.key == keys[0]]
        if unread and unread[-1] > 0:
            yield name.removeprefix(PREFIX), keys[0], unread[-1] - 1


def set_hold(table: Table, reader_id: str, head: int, snapshots: int) -> str:
    """Move the branch of a reader to `head`, to keep so many snapshots from there back.

    Returns why it was not moved; empty if it was. A failure changes nothing for the reader: the batches are then kept
    as long as the table's own branch keeps them.

    Raises:
        CatalogError: The catalog accepted the branch and left it out, so that nothing would ever be kept.
    """
    name = f"{PREFIX}{reader_id}"
    there = table.metadata.refs.get(name)
    if there is not None and there.snapshot_ref_type is not SnapshotRefType.BRANCH:
        return f"{name} is a tag"
    if there and (there.snapshot_id, there.min_snapshots_to_keep) == (head, snapshots):
        return ""
    requirements: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(ref=name, snapshot_id=None if there is None else there.snapshot_id),
    )
    update = SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.BRANCH,
        snapshot_id=head,
        max_ref_age_ms=LONGEST_HOLD_MS,
        max_snapshot_age_ms=_NO_AGE_MS,
        min_snapshots_to_keep=snapshots,
    )

    def sent() -> CommitTableResponse | None:
        try:
            return table.catalog.commit_table(table, requirements, (update,))
        except CommitFailedException:
            return None

    try:
        answer = translated("The catalog", table.catalog.properties, sent)
    except CatalogError as error:
        return describe(error)
    if answer is None:
        return "another commit came first"
    if name not in answer.metadata.refs:  # another query of this reader may have moved it on
        raise CatalogError.of("CATALOG_WITHOUT_TAGS.reader_id", branch=name)
    return ""
