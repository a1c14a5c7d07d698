"""Splits nested Arrow arrays and rebuilds them with the table's types, field ids and nullability.

Incoming arrays may be slices, have values below NULL parents, and use other child names. Rebuilt arrays start at offset
0, have nothing below a NULL list, and have the target's exact type: Parquet's field ids come from it.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def nulls_of(column: pa.Array) -> pa.BooleanArray:
    """True for each value that is NULL, also by its dictionary."""
    return (column.dictionary_decode() if pa.types.is_dictionary(column.type) else column).is_null()


def all_null(rows: int, kind: pa.DataType) -> pa.Array:
    """NULLs of a type; required children of a NULL struct get values, which the NULL hides."""
    nulls = pa.nulls(rows, kind)
    if not pa.types.is_struct(kind):
        return nulls
    children = [all_null(rows, field.type) for field in kind]
    shown = [child if field.nullable else without_validity(child) for child, field in zip(children, kind, strict=True)]
    return rebuild_struct(nulls, shown, list(kind))


def rebuild_struct(array: pa.Array, children: Sequence[pa.Array], fields: Sequence[pa.Field]) -> pa.Array:
    """A struct with the array's own NULLs and other children."""
    return pa.StructArray.from_arrays(children, fields=fields, mask=_mask(array))


def rebuild_list(array: pa.Array, target: pa.DataType, elements: pa.Array) -> pa.Array:
    """A list with the array's own NULLs and lengths, and other elements in the place of its flattened ones."""
    return pa.ListArray.from_arrays(_offsets(array), elements, target, mask=_mask(array))


def rebuild_map(array: pa.Array, target: pa.DataType, keys: pa.Array, values: pa.Array) -> pa.Array:
    """A map with the array's own NULLs and lengths, and other keys and values in the place of its `entries`."""
    return pa.MapArray.from_arrays(_offsets(as_list(array)), keys, values, target, mask=_mask(array))


def replaced(array: pa.Array, positions: pa.Array, others: pa.Array) -> pa.Array:
    """The array with others of its values at some positions."""
    order = pa.concat_arrays([pa.arange(0, len(array)), positions.cast(pa.int64())])
    newest = pc.inverse_permutation(order, max_index=len(array) - 1)
    return pa.concat_arrays([array, others]).take(newest)


def entries(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """All keys and values of maps, without entries that a NULL map hides."""
    keys, values = as_list(array).flatten().flatten()
    return keys, values


def with_duplicate_keys(parents: pa.Array, keys: pa.Array) -> pa.Array:
    """Positions of maps with a duplicate key; `parents` has the position of each key's map. Ignores NULL keys."""
    if pa.types.is_nested(keys.type):  # Arrow cannot compare nested keys
        keys = pa.array([None if key is None else repr(key) for key in keys.to_pylist()], pa.string())
    if pa.types.is_floating(keys.type):
        keys = pc.add(keys, pa.scalar(0.0, keys.type))  # -0.0 is the key 0.0 in a lookup
    codes = keys.dictionary_encode().indices.cast(pa.int64())
    count = pa.scalar(max(len(keys), 1), pa.int64())
    entries = pc.value_counts(pc.add(pc.multiply(parents.cast(pa.int64()), count), codes).drop_null())
    return pc.divide(entries.field("values").filter(pc.greater(entries.field("counts"), 1)), count)


def validity_of(array: pa.Array) -> pa.Buffer | None:
    """The validity bitmap from bit 0 on, for any offset of the array; None without NULLs."""
    return pc.invert(array.is_null()).buffers()[1] if array.null_count else None


def without_validity(array: pa.Array) -> pa.Array:
    """The array without NULLs: Parquet's writer refuses any NULL in a required column, even a hidden one."""
    kind = array.type
    if pa.types.is_struct(kind):
        children = [array.field(index) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind))
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(_offsets(as_list(array)), *entries(array), kind)
    if pa.types.is_nested(kind):
        return pa.ListArray.from_arrays(_offsets(array), array.flatten(), kind)
    return pa.Array.from_buffers(kind, len(array), [None, *array.buffers()[1:]], 0, array.offset)


def as_list(maps: pa.Array) -> pa.Array:
    """A map as the list of its pairs, which more of Arrow's functions support."""
    pairs = pa.StructArray.from_arrays([maps.keys, maps.items], names=["key", "value"])
    return pa.Array.from_buffers(
        pa.list_(pairs.type), len(maps), maps.buffers()[:2], maps.null_count, maps.offset, children=[pairs]
    )


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _offsets(lists: pa.Array) -> pa.Array:
    """Offsets of flattened lists; a NULL has no items."""
    zero = pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(bytes(4))])  # pa.array would import pandas
    lengths = pc.fill_null(pc.list_value_length(lists).cast(pa.int32()), zero[0])
    return pa.concat_arrays([zero, pc.cumulative_sum_checked(lengths)])
