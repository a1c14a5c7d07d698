"""Collects the changes of one task and keeps the newest of each key. Imports PyArrow only.

What is kept never depends on how the rows were split into batches, nor on when they were compacted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakesink.keys.change_order import HeldChanges, KeyNames
from lakesink.rows.changed_rows import ChangedRows, joined

SMALLEST_COMPACTION = 16 * 1024 * 1024
"""Bytes of changes that are held before the first search for superseded ones."""
_JOINED_BYTES = 1024 * 1024


@dataclass(slots=True)
class NewestChanges:
    """The changes of one task; memory grows with the distinct keys, not with the changes.

    Attributes:
        superseded: Changes with a newer change of the same key, or with the same one.
    """

    columns: KeyNames
    superseded: int = 0
    _stored: list[ChangedRows] = field(default_factory=list, init=False)
    _deletes: list[ChangedRows] = field(default_factory=list, init=False)
    _bytes: int = field(default=0, init=False)
    _compacted_bytes: int = field(default=0, init=False)

    def store(self, changes: ChangedRows) -> None:
        """Add changes whose rows have all columns of the table."""
        self._stored.append(changes)
        self._grow(changes)

    def delete(self, changes: ChangedRows) -> None:
        """Add deletes, whose rows have the columns of key and sequence only."""
        self._deletes.append(changes)
        self._grow(changes)

    def taken(self) -> tuple[list[ChangedRows], list[ChangedRows]]:
        """The newest change of each key, which are no longer held: those with rows to store, and deletes.

        Raises:
            WriteError: Nothing decides which change of a key is the newest.
        """
        self._keep(self._held.undecided())
        self._keep(self._held.decided())
        found = self._stored, self._deletes
        self._stored, self._deletes = [], []
        return found

    @property
    def _held(self) -> HeldChanges:
        return HeldChanges(self.columns, self._stored, self._deletes)

    def _grow(self, changes: ChangedRows) -> None:
        self._bytes += changes.nbytes
        if self._bytes >= max(SMALLEST_COMPACTION, 2 * self._compacted_bytes):
            self._keep(self._held.undecided())
            self._bytes = self._compacted_bytes = sum(held.nbytes for held in (*self._stored, *self._deletes))

    def _keep(self, kept: pa.BooleanArray | None) -> None:
        if kept is None:
            return
        self.superseded += kept.false_count
        stored_rows = sum(changes.rows.num_rows for changes in self._stored)
        self._stored = list(_filtered(self._stored, kept))
        self._deletes = list(_filtered(self._deletes, kept.slice(stored_rows)))


def _filtered(held: Sequence[ChangedRows], kept: pa.BooleanArray) -> Iterator[ChangedRows]:
    """The rows that are kept, in batches of a size that is worth its overhead."""
    start, waiting, waiting_bytes = 0, [], 0
    for changes in held:
        rows = changes.filter(kept.slice(start, changes.rows.num_rows))
        start += changes.rows.num_rows
        waiting.append(rows)
        waiting_bytes += rows.nbytes
        if waiting_bytes >= _JOINED_BYTES:
            yield joined(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield joined(waiting)
