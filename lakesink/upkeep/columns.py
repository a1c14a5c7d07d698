"""Columns of a data file as a table has them now: by field id, in the types that are written. Pure: PyArrow only.

Where the reader of batches would give NULL, because a file does not say which column is which, a rewrite refuses: the
file stays, and nothing is lost.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakesink.keys.footers import field_id_of
from lakesink.rows.nested import all_null, without_validity
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, arrow_type, leaves

Convert = Callable[[pa.Array], pa.Array]


class Unsuitable(Exception):
    """A file cannot be rewritten; the text is the reason, with its code. `path` is empty for a whole group."""

    def __init__(self, reason: str, path: str = "") -> None:
        self.path = path
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a file with its parts; `place` is its number among its siblings."""

    field_id: int | None
    place: int
    type: pa.DataType
    parts: tuple["FileColumn", ...]


def found_columns(schema: pa.Schema, mapping: Sequence[Mapping[str, Any]]) -> tuple[FileColumn, ...]:
    """The columns of a file with their field ids, which a file of another program has from the name mapping.

    Raises:
        Unsuitable: The field ids of a column, or of a part of one, are unknown.
    """
    own = tuple(_found(field, place) for place, field in enumerate(schema))
    known = [one.field_id is not None for one in _all(own)]
    if all(known):
        return own
    if any(known) or not mapping:
        raise Unsuitable("field-ids: columns have no field ids, and no name mapping says which ones they are")
    return tuple(_mapped(one, name, mapping, top=True) for one, name in zip(own, schema.names, strict=True))


def _found(field: pa.Field, place: int) -> FileColumn:
    parts = tuple(_found(part, number) for number, part in enumerate(_parts(field.type)))
    return FileColumn(field_id_of(field), place, field.type, parts)


def _parts(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(number) for number in range(kind.num_fields)]


def _all(columns: Sequence[FileColumn]) -> list[FileColumn]:
    return [one for column in columns for one in (column, *_all(column.parts))]


def _mapped(column: FileColumn, name: str, mapping: Sequence[Mapping[str, Any]], *, top: bool = False) -> FileColumn:
    entry = next((one for one in mapping if name in one.get("names", ())), {})
    if "field-id" not in entry and not top:
        raise Unsuitable(f"field-ids: the name mapping does not have {name!r:.60} inside a column")
    if "field-id" not in entry:
        return column  # no reader finds this column
    kind, names = column.type, [field.name for field in _parts(column.type)]
    if pa.types.is_map(kind):
        names = ["key", "value"]
    elif not pa.types.is_struct(kind):
        names = ["element"] * len(names)
    below = entry.get("fields", ())
    parts = tuple(_mapped(part, one, below) for part, one in zip(column.parts, names, strict=True))
    return FileColumn(entry["field-id"], column.place, kind, parts)


def conversions(found: Sequence[FileColumn], wanted: Struct) -> list[tuple[FileColumn | None, Convert]]:
    """Of each wanted column that of the file, None if it lacks it, and what makes wanted values of its values."""
    by_id = {one.field_id: one for one in found if one.field_id is not None}
    return [
        (one, _identity if one is None else _converter(one, field))
        for field, one in ((field, by_id.get(field.field_id)) for field in wanted.fields)
    ]


def check_told(found: Sequence[FileColumn], wanted: Struct, told: AbstractSet[int]) -> None:
    """Raise Unsuitable if a file lacks a part of a column whose value its partition tells."""
    lacks = told - {one.field_id for one in _all(found)}
    for leaf in leaves(wanted):
        if len(leaf.path) > 1 and leaf.field_id in lacks:
            raise Unsuitable(f"partition: only its partition tells {'.'.join(leaf.path)!r:.60}")


def check_missing(field: Field) -> None:
    """Raise Unsuitable for a column that must have a value."""
    if field.required:
        raise Unsuitable(f"required: it lacks the required column {field.name!r:.60}")


def _identity(values: pa.Array) -> pa.Array:
    return values


def _converter(found: FileColumn, field: Field) -> Convert:
    """Raises Unsuitable if not every value of the file is one of the wanted type."""
    kind, there = arrow_type(field.type), found.type
    if isinstance(there, pa.BaseExtensionType):  # of a file that stores its Arrow schema
        inner = _converter(replace(found, type=there.storage_type), field)
        return lambda values: inner(values.storage)
    match field.type:
        case Primitive() if there == kind:
            return _identity
        case Primitive() if _is_lossless(there, kind):
            return lambda values: values.cast(kind)
        case Struct() if pa.types.is_struct(there):
            return _of_struct(found, field.type, kind)
        case ListOf(element) if pa.types.is_list(there) or pa.types.is_large_list(there):
            return _of_list(_converter(found.parts[0], element), element, there, kind)
        case MapOf(key, value) if pa.types.is_map(there):
            return _of_map(_converter(found.parts[0], key), _converter(found.parts[1], value), value, kind)
    raise Unsuitable(f"type: column {field.name!r:.60} is {there!s:.60} in it")


def _shown(values: pa.Array, field: Field, visible: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """A part of a column; Parquet's writer refuses any NULL in a required one, even if a NULL hides it."""
    if not field.required or not values.null_count:
        return values
    if visible(values).null_count:
        raise Unsuitable(f"required: it has a NULL in the required column {field.name!r:.60}")
    return without_validity(values)


def _of_list(convert: Convert, element: Field, there: pa.DataType, kind: pa.ListType) -> Convert:
    def of_list(values: pa.Array) -> pa.Array:
        values = values if pa.types.is_list(there) else values.cast(pa.list_(there.value_field))
        return _with_children(kind, values, _shown(convert(values.values), element, lambda _: values.flatten()))

    return of_list


def _of_map(keys: Convert, items: Convert, value: Field, kind: pa.MapType) -> Convert:
    def of_map(values: pa.MapArray) -> pa.Array:
        pairs = [keys(values.keys), _shown(items(values.items), value, lambda items: items)]
        entries = pa.struct([kind.key_field, kind.item_field])
        return _with_children(kind, values, pa.Array.from_buffers(entries, len(pairs[0]), [None], children=pairs))

    return of_map


def _of_struct(found: FileColumn, wanted: Struct, kind: pa.StructType) -> Convert:
    parts = conversions(found.parts, wanted)
    for field, (part, _) in zip(wanted.fields, parts, strict=True):
        if part is None:
            check_missing(field)
    plain = [pa.field(one.name, one.type) for one in kind]

    def convert(values: pa.StructArray) -> pa.Array:
        children = [
            all_null(len(values), one.type)
            if part is None
            else _shown(change(values.field(part.place)), field, lambda part: part.filter(values.is_valid()))
            for one, field, (part, change) in zip(plain, wanted.fields, parts, strict=True)
        ]
        made = pa.StructArray.from_arrays(children, fields=plain, mask=values.is_null())
        # A required field is NULL where its struct is, which Arrow's own constructor refuses.
        return pa.Array.from_buffers(kind, len(values), made.buffers()[:1], children=children)

    return convert


def _with_children(target: pa.DataType, values: pa.Array, children: pa.Array) -> pa.Array:
    """The same lists with other children; both keep their whole buffers if only a part of them is used."""
    buffers = values.buffers()[:2]
    return pa.Array.from_buffers(target, len(values), buffers, values.null_count, values.offset, children=[children])


def _is_lossless(there: pa.DataType, wanted: pa.DataType) -> bool:
    """True if a cast keeps each value, or raises an error: Iceberg's promotions, and other Arrow types for one type."""
    types = pa.types
    if types.is_dictionary(there):
        return there.value_type == wanted or _is_lossless(there.value_type, wanted)
    if types.is_decimal(there) and types.is_decimal(wanted):
        return bool(there.scale == wanted.scale)
    if types.is_timestamp(there) and types.is_timestamp(wanted):  # INT96 has no time zone and means UTC
        return (there.tz is None) == (wanted.tz is None) or (there.tz, there.unit) == (None, "us")
    same = (
        (types.is_integer, types.is_integer),
        (types.is_floating, types.is_floating),
        (types.is_large_string, types.is_string),
        (types.is_large_binary, types.is_binary),
        (types.is_time, types.is_time),
    )
    wider = there.bit_width <= wanted.bit_width if types.is_floating(there) and types.is_floating(wanted) else True
    return wider and any(from_(there) and to(wanted) for from_, to in same)
