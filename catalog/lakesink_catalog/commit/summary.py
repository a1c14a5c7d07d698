"""Snapshot summaries with Iceberg's property names: of a batch, with the counts of its rows, or a compaction. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from lakesink_catalog.commit.located import Located
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.manifests.live import LiveFile
from lakesink_protocol.change import ContentFile
from lakesink_protocol.ledger import LARGEST_NUMBER, stated
from lakesink_protocol.row_changes import CHANGELOG_TABLE, MODE

_TOTALS = {
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
}
"""What each total grows and shrinks by."""
_CARRIED = "total-equality-deletes"


def carried_totals(parent: Any) -> dict[str, str]:
    """The totals of a snapshot that adds nothing: those that the parent states."""
    return {name: str(count) for name in (*_TOTALS, _CARRIED) if (count := _count(parent, name)) is not None}


def batch_summary(
    parent: Any, prepared: PreparedBatch, located: Located | None = None, removed: Sequence[LiveFile] = ()
) -> dict[str, str]:
    """Counts of a batch, what was found in its rows, and the new totals; `parent` is the parent's summary or None.

    A total is left out if the parent does not state it, or if readers could not hold it: readers take an absent total
    as unknown. The same holds for the number of changed partitions of a batch that adds rows and deletes others: its
    record does not name the partitions of its rows.
    """
    added = {
        "added-data-files": len(prepared.files),
        "added-records": prepared.rows,
        "added-files-size": sum(size for _, size in prepared.files),
    }
    if located is None or prepared.changes is None:
        return _summary(parent, added, prepared.partitions) | prepared.quality.to_summary()
    changed = _with_deletes(added, located, removed)
    partitions = {(file.spec_id, file.partition) for file in located.deletes}
    partitions |= {(file.spec_id, file.partition) for file in removed}
    count = 0 if partitions and prepared.partitions else len(partitions) or prepared.partitions
    of_changes = located.counts.to_summary() | {MODE: prepared.changes.mode.value}
    of_changes |= {CHANGELOG_TABLE: prepared.changes.changelog} if prepared.changes.changelog else {}
    return _summary(parent, changed, count) | prepared.quality.to_summary() | of_changes


def compaction_summary(
    parent: Any, added: Sequence[ContentFile], removed: Sequence[LiveFile], deletes: Sequence[LiveFile]
) -> dict[str, str]:
    """Counts of a snapshot that has the live rows of some data files in others, without their delete files."""
    partitions = {(file.spec_id, file.partition) for file in added}
    partitions |= {(file.spec_id, file.partition) for file in (*removed, *deletes)}
    changed = _without_deletes(deletes) | {
        "added-data-files": len(added),
        "added-records": sum(file.record_count for file in added),
        "added-files-size": sum(file.file_size_bytes for file in added),
        "deleted-data-files": len(removed),
        "deleted-records": sum(file.record_count for file in removed),
        "removed-files-size": sum(file.file_size_bytes for file in (*removed, *deletes)),
    }
    return _summary(parent, changed, len(partitions))


def _with_deletes(added: Mapping[str, int], located: Located, removed: Sequence[LiveFile]) -> dict[str, int]:
    new = located.deletes
    return {
        **added,
        "added-files-size": added["added-files-size"] + sum(file.file_size_bytes for file in new),
        "added-delete-files": len(new),
        "added-position-delete-files": len(new),
        "added-position-deletes": sum(file.record_count for file in new),
        **_without_deletes(removed),
    }


def _without_deletes(removed: Sequence[LiveFile]) -> dict[str, int]:
    return {
        "removed-files-size": sum(file.file_size_bytes for file in removed),
        "removed-delete-files": len(removed),
        "removed-position-delete-files": len(removed),
        "removed-position-deletes": sum(file.record_count for file in removed),
    }


def _summary(parent: Any, changed: Mapping[str, int], partitions: int) -> dict[str, str]:
    summary = carried_totals(parent)
    for total, (more, fewer) in _TOTALS.items():
        before = _count(parent, total)
        after = -1 if before is None else before + changed.get(more, 0) - changed.get(fewer, 0)
        if 0 <= after <= LARGEST_NUMBER:
            summary[total] = str(after)
        else:
            summary.pop(total, None)
    summary |= {name: str(count) for name, count in changed.items() if count}
    return summary | ({"changed-partition-count": str(partitions)} if partitions else {})


def _count(parent: Any, name: str) -> int | None:
    return 0 if parent is None else stated(parent, name)
