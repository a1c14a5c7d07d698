"""What one commit does to one table, and the counts that the summary of its snapshot gets by Iceberg's names. Pure.

The rows of a batch never depend on the table's content; its deletes do. So these are valid for one head only, and a
commit on another head locates the rows again.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from pyiceberg.table import Table

from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.manifests.live import LiveFile
from lakesink_protocol.change import ContentFile, SchemaChange
from lakesink_protocol.ledger import LARGEST_NUMBER, stated
from lakesink_protocol.row_changes import ChangeCounts

_TOTALS = {
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}
"""What each total grows and shrinks by. A change has no equality deletes: their total stays."""


@dataclass(frozen=True, slots=True)
class Located:
    """The deletes of a batch on one head: what its changes mean there.

    Attributes:
        head: The snapshot that they are valid for; None for an empty branch.
        deletes: New files of position deletes, one for each data file that loses rows.
        replaced: Older delete files whose positions the new ones contain; their entries become DELETED.
        masked: Rows of the batch itself that the new delete files remove: late or superseded ones.
    """

    head: int | None
    deletes: tuple[ContentFile, ...] = ()
    replaced: tuple[LiveFile, ...] = ()
    counts: ChangeCounts = field(default_factory=ChangeCounts)
    masked: int = 0


Locate = Callable[[Table, int | None], Located]
"""Locates the changes of one batch on a head of the loaded table. It may be called again for another head."""


@dataclass(frozen=True, slots=True)
class TagMove:
    """A tag that the commit asserts at `before` and puts at `after`; None where it is not there."""

    name: str
    before: int | None
    after: int | None
    max_age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit does to one branch: a batch, a compaction, or a snapshot that changes no file.

    It is right on one head only: the next attempt on another head makes another one.

    Attributes:
        head: The snapshot that it is made for; None for a branch without one.
        snapshot_id: Of the new snapshot, the same in all attempts.
        says: What the summary of the snapshot says beside its counts.
        prepared: Files to add whose manifests are written.
        added: Other data files to add.
        ended: Data files that are live on the head, and end.
        deletes: Files of position deletes to add, one for each data file that loses rows.
        replaced: Delete files that are live on the head, and end.
        properties: Of the table, such as ledger entries; None for one that goes.
        snapshot_properties: The user's own: what the commit says itself takes their place.
    """

    branch: str
    head: int | None
    snapshot_id: int
    says: Mapping[str, str]
    prepared: PreparedBatch | None = None
    added: tuple[ContentFile, ...] = ()
    ended: tuple[LiveFile, ...] = ()
    deletes: tuple[ContentFile, ...] = ()
    replaced: tuple[LiveFile, ...] = ()
    schema_change: SchemaChange | None = None
    properties: Mapping[str, str | None] = field(default_factory=dict)
    tags: tuple[TagMove, ...] = ()
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)

    def counts(self, parent: Any) -> dict[str, str]:
        """What it adds and ends, and the new totals; `parent` is the summary of the head, or None.

        A total is left out if the parent does not state it, or if readers could not hold it: readers take an absent
        total as unknown. The same holds for the number of changed partitions of a batch that adds rows and deletes
        others: its record does not name the partitions of its rows.
        """
        files, rows, of_rows = ((), 0, 0) if (one := self.prepared) is None else (one.files, one.rows, one.partitions)
        changed = {
            "added-data-files": len(files) + len(self.added),
            "added-records": rows + _rows(self.added),
            "added-files-size": sum(size for _, size in files) + _bytes((*self.added, *self.deletes)),
            "added-delete-files": len(self.deletes),
            "added-position-delete-files": len(self.deletes),
            "added-position-deletes": _rows(self.deletes),
            "deleted-data-files": len(self.ended),
            "deleted-records": _rows(self.ended),
            "removed-files-size": _bytes((*self.ended, *self.replaced)),
            "removed-delete-files": len(self.replaced),
            "removed-position-delete-files": len(self.replaced),
            "removed-position-deletes": _rows(self.replaced),
        }
        known: Iterable[ContentFile | LiveFile] = chain(self.added, self.ended, self.deletes, self.replaced)
        partitions = len({(file.spec_id, file.partition) for file in known})
        changed["changed-partition-count"] = 0 if partitions and of_rows else partitions or of_rows
        totals = {}
        for total, (more, fewer) in _TOTALS.items():
            before = 0 if parent is None else stated(parent, total)
            after = -1 if before is None else before + changed.get(more, 0) - changed.get(fewer, 0)
            if 0 <= after <= LARGEST_NUMBER:
                totals[total] = str(after)
        return totals | {name: str(count) for name, count in changed.items() if count}


def _rows(files: Iterable[ContentFile | LiveFile]) -> int:
    return sum(file.record_count for file in files)


def _bytes(files: Iterable[ContentFile | LiveFile]) -> int:
    return sum(file.file_size_bytes for file in files)
