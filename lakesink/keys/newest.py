"""The newest change of each key: in one task, and among the keys files of all tasks. Pure.

All changes of a key should come to one task, which keeps the newest. Where they did not, they are compared here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.keys.change_order import HeldChanges, KeyNames, leading, no_order, starts
from lakesink.keys.key_columns import KeyColumns
from lakesink.keys.keys_file import OFFSET, OP, PLACE, TASK
from lakesink.rows.changed_rows import ChangedRows, joined, place_in_words
from lakesink.rows.scalars import TRUE
from lakesink_catalog.words import counted
from lakesink_protocol.row_changes import Operation

SMALLEST_COMPACTION = 16 * 1024 * 1024
"""Bytes of changes that are held before the first search for superseded ones."""
_JOINED_BYTES = 1024 * 1024
CHANGE = "change"
"""The number of a change: its place in the table of all changes."""
_GROUP, _SNAPSHOT = "group", "snapshot"
_BLOCK_ROWS = 65_536


@dataclass(slots=True)
class NewestChanges:
    """The changes of one task; memory grows with the distinct keys, not with the changes.

    What is kept never depends on how the rows were split into batches, nor on when they were compacted.

    Attributes:
        left_out: Changes with a newer change of the same key, or with the same one.
    """

    columns: KeyNames
    left_out: int = 0
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
        self.left_out += kept.false_count
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


@dataclass(frozen=True, slots=True)
class Newest:
    """The changes that count, and the rest.

    Attributes:
        changes: At most one of each key: `CHANGE`, keys, sequences, operation, task.
        masked: Keys and task of the upserts without effect, whose rows the tasks have written.
        without_effect: Number of the others.
    """

    changes: pa.Table
    masked: pa.Table
    without_effect: int


def newest_of_each_key(changes: pa.Table, columns: KeyColumns) -> Newest:
    """Choose the newest change of each key; raises WriteError where nothing says which one this is."""
    every = numbered(changes)
    losers = _superseded(every, columns)
    every = every.select([CHANGE, *columns.key_names, *columns.sequence_names, OP, TASK])
    lost = every.take(losers)
    return Newest(
        changes=every.filter(pc.invert(pc.is_in(every[CHANGE], losers))) if len(losers) else every,
        masked=written(lost).select([*columns.key_names, TASK]),
        without_effect=len(losers),
    )


def numbered(changes: pa.Table) -> pa.Table:
    """All changes of a batch with their numbers, which are the same in every process."""
    return changes.append_column(CHANGE, pa.arange(0, changes.num_rows))


def places_of(numbers: pa.ChunkedArray) -> pa.Array:
    """For each number of a change, its place among these distinct numbers; NULL for another one.

    It needs four bytes a number, where a hash table would need dozens.
    """
    highest = pc.max(numbers).as_py()
    if highest is None:
        return pa.array([], pa.int32())
    return pc.inverse_permutation(numbers.combine_chunks(), max_index=highest, output_type=pa.int32())


def written(changes: pa.Table) -> pa.Table:
    """The upserts among the changes: their tasks have written a row of each."""
    return changes.filter(pc.not_equal(changes[OP], int(Operation.DELETE)))


def _superseded(changes: pa.Table, columns: KeyColumns) -> pa.Array:
    """The numbers of all changes with a newer change of the same key."""
    repeated = _repeated(changes, columns)
    if not repeated.num_rows:
        return pa.array([], pa.int64())
    ranks = [(name, "descending") for name in columns.sequence_names]
    if ranks:  # an event of the stream is newer than a snapshot row of the same sequence
        ranks.append((_SNAPSHOT, "ascending"))
    ordered = repeated.sort_by([(_GROUP, "ascending"), *ranks, (OFFSET, "descending"), (CHANGE, "ascending")])
    is_first = starts(ordered, _GROUP)
    best = ordered.take(leading(is_first))
    tied = pc.and_(pc.invert(is_first), _has_no_order(ordered, best, columns))
    if pc.any(tied).as_py():
        keys = counted(pc.count_distinct(ordered[_GROUP].filter(tied)).as_py(), "key")
        sequence = [column.name for column in columns.sequences]
        raise no_order(keys, [column.name for column in columns.keys], sequence, _places(ordered, best, tied))
    return ordered[CHANGE].filter(pc.invert(is_first)).combine_chunks()


def _places(ordered: pa.Table, best: pa.Table, tied: pa.ChunkedArray) -> str:
    """Where two of the changes are, for a message; empty if that is unknown."""
    at = pc.index(tied, value=True).as_py()
    found = [(rows[PLACE][at].as_py(), rows[OFFSET][at].as_py()) for rows in (best, ordered)]
    if any(place is None for place, _ in found):
        return ""
    return f" Two are at {' and '.join(place_in_words(*one) for one in found)}."


def _repeated(changes: pa.Table, columns: KeyColumns) -> pa.Table:
    """The changes of keys with several, and a number for each key. A sort needs less memory than a hash table."""
    if pc.count_distinct(changes[TASK]).as_py() < 2:  # a task reports one change of a key
        return changes.slice(0, 0)
    order = pc.sort_indices(changes, sort_keys=[(name, "ascending") for name in columns.key_names])
    like_previous = _all([_repeats(changes[name], order) for name in columns.key_names], len(order))
    if not pc.any(like_previous).as_py():
        return changes.slice(0, 0)
    like_next = pa.chunked_array([*like_previous[1:].chunks, pa.array([False])])
    several = pc.or_(like_previous, like_next)
    rows = changes.take(order.filter(several.combine_chunks()))
    groups = pc.cumulative_sum(pc.invert(like_previous).cast(pa.int64())).filter(several)
    return rows.append_column(_GROUP, groups).append_column(_SNAPSHOT, pc.equal(rows[OP], int(Operation.SNAPSHOT)))


def _has_no_order(ordered: pa.Table, best: pa.Table, columns: KeyColumns) -> pa.ChunkedArray:
    """True for a change that may be as new as the best one of its key. Two deletes need no order."""
    ranks = [*columns.sequence_names, _SNAPSHOT] if columns.sequences else []
    as_new = _all([pc.equal(ordered[name], best[name]) for name in ranks], len(ordered))
    same_place = pc.fill_null(pc.equal(ordered[PLACE], best[PLACE]), fill_value=False)
    before = pc.and_(same_place, pc.fill_null(pc.less(ordered[OFFSET], best[OFFSET]), fill_value=False))
    delete = int(Operation.DELETE)
    deletes = pc.and_(pc.equal(ordered[OP], delete), pc.equal(best[OP], delete))
    return pc.and_(as_new, pc.invert(pc.or_(before, deletes)))


def _all(conditions: Sequence[pa.ChunkedArray], rows: int) -> pa.ChunkedArray:
    return reduce(pc.and_, conditions, pa.chunked_array([pa.repeat(TRUE, rows)]))


def _repeats(values: pa.ChunkedArray, order: pa.Array) -> pa.ChunkedArray:
    """True for a value that equals the one before it in this order; a block at a time: they can be long texts."""
    every, found = values.combine_chunks(), [pa.array([False])]
    for start in range(1, len(order), _BLOCK_ROWS):
        block = every.take(order.slice(start - 1, _BLOCK_ROWS + 1))
        found.append(pc.equal(block[1:], block[:-1]))
    return pa.chunked_array(found)
