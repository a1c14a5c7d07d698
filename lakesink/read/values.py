"""Values of data files in the types and under the names that a query reads them, by field id. Pure: PyArrow only.

A file has the names and types of the time when it was written. Columns that it lacks are NULL. Values are widened, and
never changed: a cast that would lose anything is an error.
"""

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from lakesink.keys.footers import footer_of
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type

Convert = Callable[[pa.Array], pa.Array]
_WIDER = {"int": "long", "float": "double"}
_TIME = "time"


def readable_type(kind: Type) -> pa.DataType:
    """The type as Spark gets it: a uuid is text, and a fixed is binary. Everything may be NULL."""
    match kind:
        case Primitive(name="uuid"):
            return pa.string()
        case Primitive():
            return pa.binary() if kind.fixed_bytes is not None else kind.arrow
        case Struct(fields):
            return pa.struct([readable_field(field) for field in fields])
        case ListOf(element):
            return pa.list_(readable_field(element))
        case MapOf(key, value):
            return pa.map_(readable_field(key).with_nullable(nullable=False), readable_field(value))


def readable_field(field: Field) -> pa.Field:
    """A column as Spark gets it."""
    return pa.field(field.name, readable_type(field.type))


def readable_schema(schema: Struct) -> pa.Schema:
    """All columns as Spark gets them."""
    return pa.schema([readable_field(field) for field in schema.fields])


def unreadable_columns(kind: Type, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Columns of types that Spark does not have, with their paths."""
    if isinstance(kind, Primitive):
        if kind.name == _TIME:
            yield ".".join(path)
        return
    for field in kind.fields:
        yield from unreadable_columns(field.type, (*path, field.name))


def unknown_columns(reader: Struct, written: Struct, current: Struct) -> list[str]:
    """Columns of a batch that the reader would drop or cannot hold: it began before the table had them.

    A column that the table has dropped since is not among them.
    """
    known, now = dict(_by_id(reader)), dict(_by_id(current))
    return [
        name
        for number, (name, kind) in _by_id(written)
        if number in now and (number not in known or not _holds(known[number][1], kind))
    ]


def converter(found: pa.DataType, wanted: Type) -> Convert | None:
    """What makes the wanted values of those in a file; None if they are already that."""
    match wanted:
        case Primitive(name="uuid"):
            return _texts
        case Primitive():
            target = readable_type(wanted)
            return None if found == target else lambda values: values.cast(target)
        case Struct():
            return _struct(found, wanted)
        case ListOf(element):
            convert = converter(found.value_type, element.type)
            target = readable_type(wanted)
            return convert and (lambda values: _with_children(target, values, convert(values.values)))
        case MapOf(key, value):
            return _map(found, key, value)


def columns_of(
    found: pa.Schema, wanted: Struct, names: Mapping[str, int]
) -> list[tuple[int | None, Convert | None, pa.DataType]]:
    """Of each wanted column its place in the file (None if it is not there), its conversion and its type.

    `names` has the field ids of columns in files without field ids.
    """
    places = footer_of(found, names).columns
    columns = []
    for field in wanted.fields:
        place = places.get(field.field_id)
        convert = None if place is None else converter(found.field(place).type, field.type)
        columns.append((place, convert, readable_type(field.type)))
    return columns


def _by_id(schema: Type, path: tuple[str, ...] = ()) -> Iterator[tuple[int, tuple[str, Type]]]:
    for field in () if isinstance(schema, Primitive) else schema.fields:
        below = (*path, field.name)
        yield field.field_id, (".".join(below), field.type)
        yield from _by_id(field.type, below)


def _holds(reader: Type, written: Type) -> bool:
    """True if every value of the written type is one of the reader's."""
    if not isinstance(reader, Primitive) or not isinstance(written, Primitive):
        return type(reader) is type(written)
    if reader.decimal is not None and written.decimal is not None:
        return reader.decimal[1] == written.decimal[1] and reader.decimal[0] >= written.decimal[0]
    return reader.name == written.name or _WIDER.get(written.name) == reader.name


def _struct(found: pa.StructType, wanted: Struct) -> Convert | None:
    columns = columns_of(pa.schema(list(found)), wanted, {})
    if [column[:2] for column in columns] == [(place, None) for place in range(found.num_fields)]:
        return None

    def convert(values: pa.StructArray) -> pa.Array:
        children = [
            pa.nulls(len(values), kind) if place is None else apply(one, values.field(place))
            for place, one, kind in columns
        ]
        return pa.StructArray.from_arrays(children, fields=list(readable_type(wanted)), mask=values.is_null())

    return convert


def apply(convert: Convert | None, values: pa.Array) -> pa.Array:
    """The values as they are wanted."""
    return values if convert is None else convert(values)


def _map(found: pa.MapType, key: Field, value: Field) -> Convert | None:
    converts = converter(found.key_type, key.type), converter(found.item_type, value.type)
    if not any(converts):
        return None
    target = readable_type(MapOf(key, value))

    def convert(values: pa.MapArray) -> pa.Array:
        parts = [apply(one, part) for one, part in zip(converts, (values.keys, values.items), strict=True)]
        pairs = pa.StructArray.from_arrays(parts, fields=[target.key_field, target.item_field])
        return _with_children(target, values, pairs)

    return convert


def _with_children(target: pa.DataType, values: pa.Array, children: pa.Array) -> pa.Array:
    """The same lists with other children; both keep their whole buffers if only a part of them is used."""
    validity_and_offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(values), validity_and_offsets, values.null_count, values.offset, children=[children]
    )


def _texts(values: pa.Array) -> pa.Array:
    """UUIDs as text, as Iceberg's own reader for Spark gives them."""
    storage = values.storage if isinstance(values, pa.ExtensionArray) else values
    digits = (value and value.hex() for value in storage.to_pylist())
    texts = [one and f"{one[:8]}-{one[8:12]}-{one[12:16]}-{one[16:20]}-{one[20:]}" for one in digits]
    return pa.array(texts, pa.string())
