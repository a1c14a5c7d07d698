"""Compares rows bit by bit: NULL is the same as NULL, a NaN as itself, and -0.0 is not 0.0. Pure."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.parquet.transforms import distinguishable
from lakesink.rows.nested import as_list
from lakesink.rows.scalars import FALSE, whole_number
from lakesink.rows.unfit import all_but

_NO_LENGTH = whole_number(-1, pa.int32())


def same_rows(some: Sequence[pa.Array], others: Sequence[pa.Array]) -> pa.BooleanArray:
    """True for each row whose columns have the same values in both; the columns have the same types and lengths."""
    same = _same(some[0], others[0])
    for one, other in zip(some[1:], others[1:], strict=True):
        same = pc.and_(same, _same(one, other))
    return same


def _same(one: pa.Array, other: pa.Array) -> pa.BooleanArray:
    """True where both values are the same; never NULL."""
    kind, types = one.type, pa.types
    if types.is_map(kind):
        return _same_lists(as_list(one), as_list(other))
    if types.is_list(kind):
        return _same_lists(one, other)
    if types.is_struct(kind):
        pairs = zip(one.flatten(), other.flatten(), strict=True)
        same = pc.equal(one.is_valid(), other.is_valid())
        for part, counterpart in pairs:  # a flattened child is NULL wherever its parent is
            same = pc.and_(same, _same(part, counterpart))
        return same
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
