"""The changes of rows in a batch: upserts and deletes by key, and what became of them. Pure.

A *change* of a row has a key. A batch has at most one effective change of each key; the others are superseded. Where a
change finds the live row of its key is decided on the head of the commit, see `lakesink_catalog.commit.table_change`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import IntEnum, StrEnum
from typing import Any

from lakesink_protocol.measures import Measure

PREFIX = "lakesink."
MODE = "lakesink.mode"
"""Summary property of a batch of changes: what its rows were."""
CHANGELOG_TABLE = "lakesink.changelog-table"
"""Summary property of a batch of changes: the table that has all of them as rows; absent if there is none."""
CHANGELOG_OF = "lakesink.changelog."
"""How the table properties begin that keep the changelog of a sink: a batch may have died before its mark names it."""
SUPERSEDED, DELETES, SPLITS, TOMBSTONES = OF_CHANGES = tuple(
    map(Measure, ("superseded", "deletes", "splits", "tombstones"))
)
"""What a task counts of changes by key. It leaves out changes with a newer change of their key; no data file has a row
for them, nor for deletes. A row that changes a key is split in two changes, and one that repeats a delete is none.
"""


class Mode(StrEnum):
    """What the rows of a stream are."""

    APPEND = "append"
    UPSERT = "upsert"
    CHANGES = "changes"


class Operation(IntEnum):
    """The operation of one change, as a keys file has it.

    A snapshot row is an upsert of an initial load: at an equal sequence it does not replace a live row.
    """

    UPSERT = 0
    DELETE = 1
    SNAPSHOT = 2


@dataclass(frozen=True, slots=True)
class KeysFile:
    """The file with the keys of the changes that one task wrote, an Arrow IPC stream beside the data files.

    Attributes:
        rows: Changes, upserts and deletes alike.
        sha256: Of its bytes, in hexadecimal: the file is checked when it is read, perhaps by a later process.
    """

    path: str
    task: int
    rows: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """What became of the changes of one batch.

    ``upserts = inserted + updated + late_upserts`` and ``deletes = deleted + late_deletes + absent``.
    ``upserts + deletes + superseded`` is the number of changes: rows that arrived, after changes of a key were split.

    Attributes:
        superseded: Changes with a newer change of the same key in the batch.
        inserted: Upserts of a key without a live row.
        updated: Upserts that replaced a live row.
        deleted: Deletes that removed a live row.
        late_upserts: Upserts without effect, because the live row has a higher sequence.
        late_deletes: Deletes without effect, for the same reason.
        absent: Deletes without effect, because the key has no live row.
        healed: Live rows that were removed beyond one a key: another writer had inserted them.
    """

    upserts: int = 0
    deletes: int = 0
    superseded: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    late_upserts: int = 0
    late_deletes: int = 0
    absent: int = 0
    healed: int = 0

    @property
    def balanced(self) -> bool:
        """True if the counts obey the law above."""
        upserts = self.inserted + self.updated + self.late_upserts
        return self.upserts == upserts and self.deletes == self.deleted + self.late_deletes + self.absent

    @property
    def changes(self) -> int:
        """All changes: the rows that a changelog has of the batch."""
        return self.upserts + self.deletes + self.superseded

    @property
    def rows_removed(self) -> int:
        """Live rows of earlier snapshots that the batch removed."""
        return self.updated + self.deleted + self.healed

    def to_summary(self) -> dict[str, str]:
        """Properties for a snapshot's summary; all of them, so that Trino reads a 0 and not a NULL."""
        return {_PROPERTIES[name]: str(count) for name, count in asdict(self).items()}


_PROPERTIES = {one.name: PREFIX + one.name.replace("_", "-") for one in fields(ChangeCounts)}


def sum_of(found: Iterable[ChangeCounts]) -> ChangeCounts:
    """The counts of several batches together."""
    every = list(found)
    return ChangeCounts(**{name: sum(getattr(counts, name) for counts in every) for name in _PROPERTIES})


def counts_in(summary: Mapping[str, Any]) -> ChangeCounts | None:
    """The counts in a snapshot's summary; None unless it has all of them as whole numbers."""
    if not summary.get(_PROPERTIES["upserts"]):
        return None  # an append: a history has many thousands
    texts = {name: str(summary.get(key, "")) for name, key in _PROPERTIES.items()}
    if not all(text.isascii() and text.isdigit() and len(text) <= 18 for text in texts.values()):
        return None
    return ChangeCounts(**{name: int(text) for name, text in texts.items()})


def logged_changes(summary: Mapping[str, Any]) -> int:
    """The number of rows that the batch of a summary has in a changelog."""
    counts = counts_in(summary) if summary.get(CHANGELOG_TABLE) else None
    return 0 if counts is None else counts.changes
