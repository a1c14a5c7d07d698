"""Rows of a data file as a table has them now: by field id, in the types that are written. Pure: PyArrow only.

Where the reader of batches would give NULL, because a file does not say which column is which, a rewrite refuses: the
file stays, and nothing is lost.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakesink.keys.footers import field_id_of
from lakesink.rows.nested import entries, rebuild_list, rebuild_map, rebuild_struct, without_validity
from lakesink.rows.schema import Field, ListOf, MapOf, Struct, Type, arrow_schema, arrow_type, leaves


class Unsuitable(Exception):
    """A group cannot be rewritten; the text is the reason, with its code. `files` has those of single files by path."""

    def __init__(self, reason: str, files: Mapping[str, str] | None = None) -> None:
        self.files = files or {}
        super().__init__(reason)


def parts_of(kind: pa.DataType) -> list[pa.Field]:
    """The fields of a nested type; none of any other."""
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(number) for number in range(kind.num_fields)]


def by_field_id(schema: pa.Schema, mapping: Sequence[Mapping[str, Any]] = ()) -> pa.StructType:
    """The columns of a file, and their parts, with their field ids as names.

    A file of another program has them from the name mapping; no reader finds a column that it does not have.

    Raises:
        Unsuitable: The field ids of a column, or of a part of one, are unknown.
    """
    ids = [field_id_of(one) for one in _all(schema)]
    if None not in ids and len(set(ids)) == len(ids):
        return pa.struct([_named(one, one.name, None) for one in schema])
    if any(one is not None for one in ids) or not mapping:
        raise Unsuitable("field-ids: columns have no field ids, and no name mapping says which ones they are")
    return pa.struct([_named(one, one.name, mapping) or one.with_name(f"?{one.name}") for one in schema])


def _all(fields: Sequence[pa.Field]) -> Iterator[pa.Field]:
    for field in fields:
        yield field
        yield from _all(parts_of(field.type))


def _named(field: pa.Field, name: str, mapping: Sequence[Mapping[str, Any]] | None) -> pa.Field | None:
    """The field with its own id as its name, or with that of the mapping; None if the mapping does not have it."""
    kind, number, fields = field.type, field_id_of(field), parts_of(field.type)
    if isinstance(kind, pa.BaseExtensionType):  # of a file that stores its Arrow schema
        kind = kind.storage_type
    if mapping is not None:
        entry = next((one for one in mapping if name in one.get("names", ()) and "field-id" in one), None)
        if entry is None:
            return None
        number, mapping = entry["field-id"], entry.get("fields", ())
    names = ["key", "value"] if pa.types.is_map(kind) else ["element"]
    if pa.types.is_struct(kind):
        names = [part.name for part in fields]
    parts = [part for one, part_name in zip(fields, names, strict=False) if (part := _named(one, part_name, mapping))]
    if len(parts) < len(fields):
        raise Unsuitable(f"field-ids: the name mapping does not have a part of {name!r:.60}")
    if pa.types.is_struct(kind):
        kind = pa.struct(parts)
    elif pa.types.is_map(kind):
        kind = pa.map_(parts[0].with_nullable(nullable=False), parts[1])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = (pa.list_ if pa.types.is_list(kind) else pa.large_list)(parts[0])
    return pa.field(str(number), kind)  # a NULL may hide one in a required part: `converted` looks


def check_told(found: pa.StructType, wanted: Struct, told: Container[int]) -> None:
    """Raise Unsuitable if a file lacks a part of a column whose value its partition tells."""
    has = {one.name for one in _all(list(found))}
    for leaf in leaves(wanted):
        if len(leaf.path) > 1 and leaf.field_id in told and str(leaf.field_id) not in has:
            raise Unsuitable(f"partition: only its partition tells {'.'.join(leaf.path)!r:.60}")


def check(found: pa.DataType, wanted: Type, told: Container[int] = (), name: str = "") -> None:
    """Raise Unsuitable if not each value of a file is one of the wanted type; `told` has the columns it may lack."""
    match wanted:
        case Struct(fields) if pa.types.is_struct(found):
            for field in fields:
                if (place := found.get_field_index(str(field.field_id))) >= 0:
                    check(found.field(place).type, field.type, (), field.name)
                elif field.required and field.field_id not in told:
                    raise Unsuitable(f"required: it lacks the required column {field.name!r:.60}")
        case ListOf(element) if pa.types.is_list(found) or pa.types.is_large_list(found):
            check(found.value_type, element.type, (), name)
        case MapOf(key, value) if pa.types.is_map(found):
            check(found.key_type, key.type, (), name)
            check(found.item_type, value.type, (), name)
        case _ if found != (kind := arrow_type(wanted)) and not _is_lossless(found, kind):
            raise Unsuitable(f"type: column {name!r:.60} is {found!s:.60} in it")


def converted(batch: pa.RecordBatch, found: pa.StructType, wanted: Struct, told: Mapping[int, Any]) -> pa.RecordBatch:
    """Rows of a file as they are wanted, with the values of columns that it lacks; Arrow casts structs by names."""
    arrays = batch.to_struct_array().view(found).cast(by_field_id(arrow_schema(wanted))).flatten()
    for place, field in enumerate(wanted.fields):
        if field.field_id in told:
            arrays[place] = pa.repeat(told[field.field_id], batch.num_rows)
        arrays[place] = _part(arrays[place], field)
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(wanted))


def _part(values: pa.Array, field: Field, parents: pa.Array | None = None) -> pa.Array:
    """Values of a field under the wanted type: a NULL in a required part is right only where NULL `parents` hide it."""
    match field.type:
        case Struct(fields):
            parts = [_part(values.field(place), one, values) for place, one in enumerate(fields)]
            values = rebuild_struct(values, parts, list(arrow_type(field.type)))
        case ListOf(element):
            values = rebuild_list(values, arrow_type(field.type), _part(values.flatten(), element))
        case MapOf(key, value):
            keys, items = entries(values)
            values = rebuild_map(values, arrow_type(field.type), _part(keys, key), _part(items, value))
    if not field.required or not values.null_count:
        return values
    if parents is None or values.filter(parents.is_valid()).null_count:
        raise Unsuitable(f"required: it has a NULL in the required column {field.name!r:.60}")
    return without_validity(values)


def _is_lossless(there: pa.DataType, wanted: pa.DataType) -> bool:
    """True if a cast keeps each value, or raises an error: Iceberg's promotions, and other Arrow types for one type."""
    types = pa.types
    if types.is_dictionary(there):
        return there.value_type == wanted or _is_lossless(there.value_type, wanted)
    if types.is_decimal(there) and types.is_decimal(wanted):
        return bool(there.scale == wanted.scale)
    if types.is_timestamp(there) and types.is_timestamp(wanted):  # INT96 has no time zone and means UTC
        return (there.tz is None) == (wanted.tz is None) or (there.tz, there.unit) == (None, "us")
    if types.is_floating(there) and types.is_floating(wanted):
        return bool(there.bit_width <= wanted.bit_width)
    same = (
        (types.is_integer, types.is_integer),
        (types.is_large_string, types.is_string),
        (types.is_large_binary, types.is_binary),
        (types.is_time, types.is_time),
    )
    return any(from_(there) and to(wanted) for from_, to in same)
