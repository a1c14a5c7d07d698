"""What an audit needs of every retained snapshot: a summary is read once, and only these facts of it are kept. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyiceberg.table.snapshots import Operation, Snapshot

from lakesink_catalog.read.history import RetainedBatch
from lakesink_protocol.iceberg_spark_sink import epoch_of
from lakesink_protocol.ledger import Mark, stated
from lakesink_protocol.quality import DEAD_LETTERS, MALFORMED_ROWS, RESCUED_ROWS, UNKNOWN_KEYS, UNMET_ROWS
from lakesink_protocol.situation import cherry_picked_from

Counts = tuple[int | None, int | None, int | None]
"""Files, rows and bytes; None for what a summary does not state."""


class SnapshotFacts(NamedTuple):
    """One snapshot."""

    snapshot: Snapshot
    mark: Mark | None
    is_append: bool
    picked_from: int | None  # the source of a cherry-pick
    epoch: tuple[str, int] | None  # query and batch of Iceberg's own Spark sink
    added_files: int | None
    added_rows: int | None
    added_bytes: int | None
    total_files: int | None
    total_rows: int | None
    total_bytes: int | None
    malformed_rows: int
    unknown_keys: int
    unmet_rows: int
    dead_letters: int
    rescued_rows: int

    @property
    def added(self) -> Counts:
        """What the summary says that it added."""
        return self.added_files, self.added_rows, self.added_bytes

    @property
    def totals(self) -> Counts:
        """What the summary says that the table has."""
        return self.total_files, self.total_rows, self.total_bytes

    @property
    def snapshot_id(self) -> int:
        """Id."""
        return self.snapshot.snapshot_id

    @property
    def parent_snapshot_id(self) -> int | None:
        """Id of the parent."""
        return self.snapshot.parent_snapshot_id

    @property
    def sequence_number(self) -> int | None:
        """Sequence number."""
        return self.snapshot.sequence_number

    @property
    def manifest_list(self) -> str:
        """Location of the manifest list."""
        return self.snapshot.manifest_list


def facts_of(snapshots: Iterable[Snapshot], batches: Iterable[RetainedBatch]) -> dict[int, SnapshotFacts]:
    """The facts by id, with the marks that were read before."""
    marks = {id(batch.snapshot): batch.mark for batch in batches}  # ids of snapshots repeat in damaged metadata
    return {snapshot.snapshot_id: _facts(snapshot, marks) for snapshot in snapshots}


def _facts(snapshot: Snapshot, marks: Mapping[int, Mark]) -> SnapshotFacts:
    summary = snapshot.summary
    return SnapshotFacts(
        snapshot,
        marks.get(id(snapshot)),
        summary is not None and summary.operation is Operation.APPEND,
        cherry_picked_from(summary),
        epoch_of(summary),
        stated(summary, "added-data-files"),
        stated(summary, "added-records"),
        stated(summary, "added-files-size"),
        stated(summary, "total-data-files"),
        stated(summary, "total-records"),
        stated(summary, "total-files-size"),
        stated(summary, MALFORMED_ROWS) or 0,
        stated(summary, UNKNOWN_KEYS) or 0,
        stated(summary, UNMET_ROWS) or 0,
        stated(summary, DEAD_LETTERS) or 0,
        stated(summary, RESCUED_ROWS) or 0,
    )
