"""What an audit needs of every retained snapshot: a summary is read once, and only these facts of it are kept. Pure."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from lakesink_catalog.read.history import RetainedBatch
from lakesink_protocol.iceberg_spark_sink import epoch_of
from lakesink_protocol.ledger import Mark, stated
from lakesink_protocol.quality import DEAD_LETTERS, RESCUED_ROWS, UNKNOWN_KEYS, UNMET_ROWS
from lakesink_protocol.row_changes import MODE, ChangeCounts, counts_in
from lakesink_protocol.situation import cherry_picked_from

_ADDED = ("added-data-files", "added-records", "added-files-size", "added-delete-files", "added-position-deletes")
_REMOVED = (
    "deleted-data-files",
    "deleted-records",
    "removed-files-size",
    "removed-delete-files",
    "removed-position-deletes",
)
_TOTALS = ("total-data-files", "total-records", "total-files-size", "total-delete-files", "total-position-deletes")


class Counts(NamedTuple):
    """What files hold; None for what a summary does not state."""

    files: int | None  # data files
    rows: int | None
    bytes: int | None  # of data files and delete files
    delete_files: int | None
    position_deletes: int | None


class SnapshotFacts(NamedTuple):
    """One snapshot."""

    snapshot: Snapshot
    mark: Mark | None
    is_append: bool
    picked_from: int | None  # the source of a cherry-pick
    epoch: tuple[str, int] | None  # query and batch of Iceberg's own Spark sink
    added: Counts  # by its summary, like the next two
    removed: Counts
    totals: Counts
    changes: ChangeCounts | None  # by key; None if it appended or is of another writer
    has_mode: bool  # True if it says that it changed rows by key
    unknown_keys: int
    unmet_rows: int
    dead_letters: int
    rescued_rows: int

    @property
    def added_rows(self) -> int:
        """Rows in the data files that it added."""
        return self.added.rows or 0

    @property
    def keeps_data(self) -> bool:
        """True if it references every data file of its parent; changes by key remove rows by delete files only."""
        return self.is_append or (self.changes is not None and not self.removed.files)

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
        _stated(summary, _ADDED),
        _stated(summary, _REMOVED),
        _stated(summary, _TOTALS),
        counts_in(summary) if summary is not None else None,
        bool(summary and summary[MODE]),
        stated(summary, UNKNOWN_KEYS) or 0,
        stated(summary, UNMET_ROWS) or 0,
        stated(summary, DEAD_LETTERS) or 0,
        stated(summary, RESCUED_ROWS) or 0,
    )


def _stated(summary: Summary | None, names: tuple[str, ...]) -> Counts:
    return _shared(*(stated(summary, name) for name in names))


@lru_cache(maxsize=1024)
def _shared(*counts: int | None) -> Counts:
    """One object for all snapshots with the same counts: most of a history remove nothing."""
    return Counts(*counts)
