"""Snapshot summary of an append with Iceberg's own property names, and the counts of its rows. Pure."""

from typing import Any

from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_protocol.ledger import LARGEST_NUMBER, stated

_TOTALS = (
    ("total-data-files", "added-data-files"),
    ("total-records", "added-records"),
    ("total-files-size", "added-files-size"),
)
_CARRIED = ("total-delete-files", "total-position-deletes", "total-equality-deletes")


def carried_totals(parent: Any) -> dict[str, str]:
    """The totals of a snapshot that adds nothing: those that the parent states."""
    names = (*(total for total, _ in _TOTALS), *_CARRIED)
    return {name: str(count) for name in names if (count := _count(parent, name)) is not None}


def append_summary(parent: Any, prepared: PreparedBatch) -> dict[str, str]:
    """Counts of an append, what was found in its rows, and the new totals; `parent` is the parent's summary or None.

    A total is left out if the parent does not state it, or if readers could not hold it: readers take an absent total
    as unknown.
    """
    added = {
        "added-data-files": len(prepared.files),
        "added-records": prepared.rows,
        "added-files-size": sum(size for _, size in prepared.files),
    }
    summary = {name: str(count) for name, count in added.items() if count}
    if prepared.partitions:
        summary["changed-partition-count"] = str(prepared.partitions)
    for total, name in _TOTALS:
        before = _count(parent, total)
        if before is not None and before + added[name] <= LARGEST_NUMBER:
            summary[total] = str(before + added[name])
    return carried_totals(parent) | summary | prepared.quality.to_summary()


def _count(parent: Any, name: str) -> int | None:
    return 0 if parent is None else stated(parent, name)
