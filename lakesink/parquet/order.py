"""A table's sort order over Arrow rows, as Iceberg's specification defines it. Runs wherever data files are written.

-0.0 is less than 0.0, and NaN is the greatest number. Texts compare by their UTF-8 bytes, and bytes are unsigned.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg_core import transform as core

from lakesink.parquet.partitions import source_values
from lakesink.parquet.transforms import Transform, distinguishable, parse_transform
from lakesink.rows.plan import SortField
from lakesink.rows.scalars import whole_number
from lakesink.rows.schema import Struct, leaves

_WAYS, _PLACES = ("ascending", "descending"), ("at_end", "at_start")


@dataclass(frozen=True, slots=True)
class SortKey:
    """One field of a sort order, with the positions of its source column from the top through structs."""

    field: SortField
    indices: tuple[int, ...]
    transform: Transform


def sort_keys(schema: Struct, order: Sequence[SortField]) -> tuple[SortKey, ...]:
    """The keys of an order; raises KeyError if a source is no column with plain values, WriteError for a transform."""
    found = {leaf.field_id: leaf for leaf in leaves(schema) if not leaf.repeated}
    columns = [(field, found[field.source_id]) for field in order]
    return tuple(SortKey(one, leaf.indices, parse_transform(one.transform, leaf.type)) for one, leaf in columns)


def indices(table: pa.Table, order: Sequence[SortKey]) -> pa.Array | None:
    """The rows' positions in the order, equal rows as they come; None if they have it already."""
    if not order or not table.num_rows:
        return None
    found = pc.sort_indices(comparable(table, order), sort_keys=ways(order))
    return None if pc.all(pc.greater(found[1:], found[:-1])).as_py() else found


def comparable(table: pa.Table, order: Sequence[SortKey]) -> pa.Table:
    """A column for each key, which Arrow sorts in Iceberg's order by `ways`."""
    keys = (_comparable(source_values(table, key.indices), key.transform) for key in order)
    return pa.table({str(place): values for place, values in enumerate(keys)})


def ways(order: Sequence[SortKey]) -> list[tuple[str, str, str]]:
    """How Arrow sorts the columns of `comparable`."""
    fields = enumerate(key.field for key in order)
    return [(str(place), _WAYS[one.is_descending], _PLACES[one.nulls_first]) for place, one in fields]


def _comparable(values: pa.Array, transform: Transform) -> pa.Array:
    """Values that Arrow sorts in Iceberg's order. One beyond its type wraps around, as in Java: no row is refused."""
    if transform.name == "hour":
        return core.hour(values)
    if transform.name == "truncate":
        return core.truncate(values, transform.width)
    found = transform.apply(values)
    if not transform.result.is_floating:
        return found
    bits = distinguishable(found)
    magnitude = whole_number(2 ** (bits.type.bit_width - 1) - 1, bits.type)
    is_negative = pc.less(bits, whole_number(0, bits.type))
    return pc.if_else(is_negative, pc.bit_wise_xor(bits, magnitude), bits)  # the greater a magnitude, the less it is
