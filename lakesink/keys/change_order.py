"""Decides which changes of one task are the newest of their keys. Pure.

The newest change has the greatest sequence; of those, an event of a stream is newer than a row of a snapshot; of those,
the greatest offset within one place is the newest. Changes that this order does not decide are kept until the end,
because a later change can be newer than all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.parquet.transforms import distinguishable, numbers_of
from lakesink.rows.changed_rows import ChangedRows
from lakesink.rows.nested import as_list
from lakesink.rows.scalars import FALSE, TRUE, int64, operation_scalar, whole_number
from lakesink.rows.task_errors import LONGEST_VALUE, shown
from lakesink.rows.unfit import all_but
from lakesink_catalog.words import counted
from lakesink_protocol.errors import WriteError
from lakesink_protocol.redact import shown as printable
from lakesink_protocol.row_changes import Operation

_NO_LENGTH = whole_number(-1, pa.int32())
_SHOWN_KEYS = 5
_COMPARED_ROWS = 8_192
_UNKNOWN = -(2**63)
"""In place of an unknown place or offset."""
_AT, _KEY, _OPERATION, _PLACE, _OFFSET, _OF_STREAM = "at", "key", "operation", "place", "offset", "of_stream"


@dataclass(frozen=True, slots=True)
class KeyNames:
    """Names of the table's columns that identify a row, and of those that order its changes.

    Attributes:
        shows_values: True to show values of keys in errors.
    """

    keys: tuple[str, ...]
    sequence: tuple[str, ...]
    shows_values: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that every change has, each once."""
        return tuple(dict.fromkeys((*self.keys, *self.sequence)))


@dataclass(frozen=True, slots=True)
class HeldChanges:
    """Changes to decide on. Positions count the rows to store first, and then the deletes."""

    columns: KeyNames
    stored: Sequence[ChangedRows]
    deletes: Sequence[ChangedRows]

    def undecided(self) -> pa.BooleanArray | None:
        """True for each change that may be the newest of its key; None if all may be.

        Of the changes of one key and place that the order does not decide, two are enough.
        """
        repeated = self._repeated()
        if repeated is None:
            return None
        changes = self._of_greatest_sequence(self._facts(*repeated))
        changes = _sorted(changes, (_KEY, "ascending"), (_PLACE, "ascending"), (_OFFSET, "descending"))
        changes = _like_first(changes, starts(changes, _KEY, _PLACE), [_OFFSET])
        first = starts(changes, _KEY, _PLACE)
        second = changes.filter(self._unlike(changes, first))
        second = second.filter(starts(second, _KEY, _PLACE))
        return _kept(repeated[0], pa.concat_tables([changes.filter(first), second]))

    def decided(self) -> pa.BooleanArray | None:
        """True for each newest change, of those that `undecided` has kept; None if all are.

        Raises:
            WriteError: Nothing decides which change of a key is the newest.
        """
        repeated = self._repeated()
        if repeated is None:
            return None
        changes = _sorted(self._facts(*repeated), (_KEY, "ascending"), (_PLACE, "descending"), (_OFFSET, "descending"))
        first = starts(changes, _KEY)
        tied = changes.filter(self._unlike(changes, first))
        if tied.num_rows:
            raise self._tied(tied)
        return _kept(repeated[0], changes.filter(first))

    def _repeated(self) -> tuple[pa.BooleanArray, pa.Array] | None:
        """True for each change of a key that has several, and the numbers of these keys; None if no key has several."""
        if not self.stored and not self.deletes:
            return None
        numbers = numbers_of(map(self._column, self.columns.keys))
        counts = pc.value_counts(numbers).field("counts")  # in the order of the numbers
        if len(counts) == len(numbers):
            return None
        repeated = pc.greater(counts.take(numbers), int64(1))
        return repeated, numbers.filter(repeated)

    def _facts(self, repeated: pa.BooleanArray, numbers: pa.Array) -> pa.Table:
        """What decides on the repeated changes, and their positions."""
        held = [*self.stored, *self.deletes]
        operations = pa.concat_arrays([changes.operations for changes in held]).filter(repeated)
        places, offsets = (
            pc.fill_null(pa.concat_arrays(arrays).filter(repeated), int64(_UNKNOWN))
            for arrays in ([changes.places for changes in held], [changes.offsets for changes in held])
        )
        facts = {
            _AT: pc.indices_nonzero(repeated).cast(pa.int64()),
            _KEY: numbers,
            _OPERATION: operations,
            _PLACE: places,
            _OFFSET: offsets,
            _OF_STREAM: pc.not_equal(operations, operation_scalar(Operation.SNAPSHOT)),
        }
        sequence = {f"s{at}": self._column(name).filter(repeated) for at, name in enumerate(self.columns.sequence)}
        return pa.table({**facts, **sequence})

    def _column(self, name: str) -> pa.ChunkedArray:
        return pa.chunked_array([changes.rows.column(name) for changes in (*self.stored, *self.deletes)])

    def _of_greatest_sequence(self, changes: pa.Table) -> pa.Table:
        """The newest changes of each key by sequence."""
        if not self.columns.sequence:
            return changes
        order = [*(f"s{at}" for at in range(len(self.columns.sequence))), _OF_STREAM]
        ordered = _sorted(changes, (_KEY, "ascending"), *((name, "descending") for name in order))
        return _like_first(ordered, starts(ordered, _KEY), order)

    def _unlike(self, changes: pa.Table, first: pa.BooleanArray) -> pa.BooleanArray:
        """True for each change that is not the first of its group, and another one than that."""
        # without a sequence, every repetition is another change: equal rows can be two events
        others = pc.invert(first)
        if not self.columns.sequence:
            return others
        leaders = changes.take(leading(first).filter(others))
        same = self._same(changes.filter(others), leaders)
        return pc.replace_with_mask(others, others, pc.invert(same))

    def _same(self, some: pa.Table, others: pa.Table) -> pa.BooleanArray:
        """True for each pair of changes, of one key and sequence, that are the same: deletes, or equal rows."""
        same = _array(pc.equal(some[_OPERATION], others[_OPERATION]))
        stored_rows = int64(sum(changes.rows.num_rows for changes in self.stored))
        compared = _array(pc.and_(same, pc.less(some[_AT], stored_rows)))
        compared = pc.and_(compared, _array(pc.less(others[_AT], stored_rows)))
        if not (count := compared.true_count):
            return same
        pairs = some[_AT].filter(compared), others[_AT].filter(compared)
        rows, found = pa.Table.from_batches([changes.rows for changes in self.stored]), []
        for start in range(0, count, _COMPARED_ROWS):
            taken = (rows.take(at.slice(start, _COMPARED_ROWS)) for at in pairs)
            found.append(same_rows(*(list(map(_array, each.columns)) for each in taken)))
        return pc.replace_with_mask(same, compared, pa.concat_arrays(found))

    def _tied(self, tied: pa.Table) -> WriteError:
        """The error for changes of which none is the newest."""
        keys = counted(pc.count_distinct(tied[_KEY]).as_py(), "key")
        source = self._source_of(tied[_AT][0].as_py())
        has_place = tied[_PLACE][0].as_py() != _UNKNOWN
        where = f" One of them is at {source}." if has_place else ""
        details = [*self._shown_keys(tied), *([f"one of them is {source}"] if source and not has_place else [])]
        return no_order(keys, self.columns.keys, self.columns.sequence, where, details)

    def _source_of(self, at: int) -> str:
        for changes in (*self.stored, *self.deletes):
            if at < changes.rows.num_rows:
                return changes.source_of(at)
            at -= changes.rows.num_rows
        raise AssertionError("a position is that of a change")

    def _shown_keys(self, tied: pa.Table) -> list[str]:
        """The first keys of changes that are sorted by key; none if they must not be shown."""
        if not self.columns.shows_values:
            return []
        firsts = tied[_AT].filter(starts(tied, _KEY)).slice(0, _SHOWN_KEYS)
        keys = pa.table([self._column(name).take(firsts) for name in self.columns.keys], self.columns.keys)
        return [
            ", ".join(f"{name}={printable(str(value), LONGEST_VALUE)}" for name, value in key.items())
            for key in keys.to_pylist()
        ]


def _sorted(changes: pa.Table, *by: tuple[str, str]) -> pa.Table:
    """The changes in a stable order."""
    return changes.take(pc.sort_indices(changes, sort_keys=list(by)))


def starts(ordered: pa.Table, *names: str) -> pa.BooleanArray:
    """True for the first change of each group that these columns make."""
    rows = ordered.num_rows
    differs = [
        pc.not_equal(column.slice(1), column.slice(0, max(rows - 1, 0))) for column in map(ordered.column, names)
    ]
    return pa.concat_arrays([pa.repeat(TRUE, min(rows, 1)), _array(reduce(pc.or_, differs))])


def leading(first: pa.BooleanArray) -> pa.Array:
    """For each change, the position of the first of its group."""
    groups = pc.subtract(pc.cumulative_sum(first.cast(pa.int64())), int64(1))
    return pc.indices_nonzero(first).take(groups)


def _like_first(ordered: pa.Table, first: pa.BooleanArray, names: Sequence[str]) -> pa.Table:
    """The changes whose columns have the values of the first of their group."""
    leaders = ordered.select(names).take(leading(first))
    return ordered.filter(reduce(pc.and_, [pc.equal(ordered[name], leaders[name]) for name in names]))


def _kept(repeated: pa.BooleanArray, kept: pa.Table) -> pa.BooleanArray:
    """True for each change that is not repeated, or kept."""
    among_repeated = pc.is_in(pc.indices_nonzero(repeated).cast(pa.int64()), value_set=_array(kept[_AT]))
    return pc.replace_with_mask(pc.invert(repeated), repeated, among_repeated)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def _named(columns: Sequence[str]) -> str:
    return shown(", ".join(columns))


def same_rows(some: Sequence[pa.Array], others: Sequence[pa.Array]) -> pa.BooleanArray:
    """True for each row whose columns have the same values in both; the columns have the same types and lengths.

    Values are compared bit by bit: NULL is the same as NULL, a NaN as itself, and -0.0 is not 0.0.
    """
    return reduce(pc.and_, map(_same, some, others))


def _same(one: pa.Array, other: pa.Array) -> pa.BooleanArray:
    """True where both values are the same; never NULL."""
    kind, types = one.type, pa.types
    if types.is_map(kind):
        return _same_lists(as_list(one), as_list(other))
    if types.is_list(kind):
        return _same_lists(one, other)
    if types.is_struct(kind):
        parts = map(_same, one.flatten(), other.flatten())  # a flattened child is NULL wherever its parent is
        return reduce(pc.and_, parts, pc.equal(one.is_valid(), other.is_valid()))
    equal = pc.fill_null(pc.equal(distinguishable(one), distinguishable(other)), FALSE)
    return pc.or_(equal, pc.and_(one.is_null(), other.is_null()))


def _same_lists(one: pa.Array, other: pa.Array) -> pa.BooleanArray:
    length, other_length = (pc.fill_null(pc.list_value_length(array), _NO_LENGTH) for array in (one, other))
    same_length = pc.equal(length, other_length)
    kept, counterparts = one.filter(same_length), other.filter(same_length)
    differ = pc.invert(_same(kept.flatten(), counterparts.flatten()))
    parents = pc.unique(pc.list_parent_indices(kept).filter(differ))
    unlike = pc.indices_nonzero(same_length).take(parents).to_pylist()
    return pc.and_(same_length, all_but(len(one), unlike))


def no_order(
    keys: str, columns: Sequence[str], sequence: Sequence[str], where: str, details: Sequence[str] = ()
) -> WriteError:
    """The error for changes of keys of which none is the newest."""
    names = _named(columns)
    if not sequence:
        return WriteError.of("KEY_TWICE", details=details, keys=keys, names=names, where=where)
    return WriteError.of(
        "SEQUENCE_TIED", details=details, keys=keys, names=names, sequence=_named(sequence), where=where
    )
