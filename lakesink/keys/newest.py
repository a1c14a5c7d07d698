"""The newest change of each key among the changes of all tasks. Pure.

All changes of a key should come to one task, which keeps the newest. Where they did not, they are compared here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.keys.key_columns import KeyColumns
from lakesink.keys.keys_files import OFFSET, OP, PLACE, TASK
from lakesink.keys.locate_errors import key_twice, sequence_tied
from lakesink.rows.changed_rows import place_in_words
from lakesink_protocol.row_changes import Operation

CHANGE = "change"
"""The number of a change: its place in the table of all changes."""
_GROUP, _SNAPSHOT = "group", "snapshot"
_BLOCK_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Newest:
    """The changes that count, and the rest.

    Attributes:
        changes: At most one of each key: `CHANGE`, keys, sequences, operation, task.
        masked: Keys and task of the upserts without effect, whose rows the tasks have written.
        superseded: Changes without effect.
    """

    changes: pa.Table
    masked: pa.Table
    superseded: int


def newest_of_each_key(changes: pa.Table, columns: KeyColumns) -> Newest:
    """Choose the newest change of each key; raises WriteError where nothing says which one this is."""
    every = numbered(changes)
    losers = _superseded(every, columns)
    every = every.select([CHANGE, *columns.key_names, *columns.sequence_names, OP, TASK])
    lost = every.take(losers)
    return Newest(
        changes=every.filter(pc.invert(pc.is_in(every[CHANGE], losers))) if len(losers) else every,
        masked=written(lost).select([*columns.key_names, TASK]),
        superseded=len(losers),
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
    ordered = repeated.sort_by(_newest_first(columns))
    is_first = pc.invert(_like_previous(ordered[_GROUP]))
    firsts = pc.subtract(pc.cumulative_sum(is_first.cast(pa.int64())), 1)
    best = ordered.filter(is_first).take(firsts)
    tied = pc.and_(pc.invert(is_first), _has_no_order(ordered, best, columns))
    if pc.any(tied).as_py():
        keys = pc.count_distinct(ordered[_GROUP].filter(tied)).as_py()
        raise (sequence_tied if columns.sequences else key_twice)(columns, keys, _places(ordered, best, tied))
    return ordered[CHANGE].filter(pc.invert(is_first)).combine_chunks()


def _places(ordered: pa.Table, best: pa.Table, tied: pa.ChunkedArray) -> str:
    """Where two of the changes are, for a message; empty if that is unknown."""
    at = pc.index(tied, value=True).as_py()
    found = [(rows[PLACE][at].as_py(), rows[OFFSET][at].as_py()) for rows in (best, ordered)]
    if any(place is None for place, _ in found):
        return ""
    return f" Two are at {' and '.join(place_in_words(*one) for one in found)}."


def _repeated(changes: pa.Table, columns: KeyColumns) -> pa.Table:
    """The changes of keys with several changes, with a number for each key.

    A sort needs less memory than a hash table of the keys.
    """
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


def _newest_first(columns: KeyColumns) -> list[tuple[str, str]]:
    """An event of the stream is newer than a snapshot row of the same sequence."""
    sequences = [(name, "descending") for name in columns.sequence_names]
    ranks = [*sequences, (_SNAPSHOT, "ascending")] if sequences else []
    return [(_GROUP, "ascending"), *ranks, (OFFSET, "descending"), (CHANGE, "ascending")]


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
    found = pa.chunked_array([pa.repeat(pa.scalar(value=True), rows)])
    for condition in conditions:
        found = pc.and_(found, condition)
    return found


def _repeats(values: pa.ChunkedArray, order: pa.Array) -> pa.ChunkedArray:
    """`_like_previous` of the values in this order; a block at a time, because they can be long texts."""
    every, found = values.combine_chunks(), [pa.array([False])]
    for start in range(1, len(order), _BLOCK_ROWS):
        block = every.take(order.slice(start - 1, _BLOCK_ROWS + 1))
        found.append(pc.equal(block[1:], block[:-1]))
    return pa.chunked_array(found)


def _like_previous(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """True for a value that equals the one before it."""
    return pa.chunked_array([pa.array([False]), *pc.equal(values[1:], values[:-1]).chunks])
