"""Parses an Iceberg schema from metadata JSON, and converts it to Arrow with field ids and to a list of leaves.

Executors use this instead of PyIceberg, whose import takes longer than a small batch. It supports the types of format
version 2 only.

Until it is written, a uuid is sixteen plain bytes, because few of Arrow's functions support the extension type inside
lists. It gets the extension type, from which Parquet's annotation comes, only when it is written.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa

from lakesink.rows.task_errors import schema_mismatch, shown
from lakesink_catalog.spark_types import sql_type

FIELD_ID_KEY = "PARQUET:field_id"
UUID_BYTES = 16

_ARROW: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "uuid": pa.binary(UUID_BYTES),
    "binary": pa.binary(),
}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_FIXED = re.compile(r"fixed\[\s*(\d+)\s*\]")


@dataclass(frozen=True)
class Primitive:
    """A leaf's type in Iceberg's spelling: ``long``, ``decimal(9, 2)``, ``fixed[4]``, ..."""

    name: str

    @cached_property
    def decimal(self) -> tuple[int, int] | None:
        """Precision and scale; None for other types."""
        found = _DECIMAL.fullmatch(self.name)
        return (int(found[1]), int(found[2])) if found else None

    @cached_property
    def fixed_bytes(self) -> int | None:
        """Length of a ``fixed``; None for other types."""
        found = _FIXED.fullmatch(self.name)
        return int(found[1]) if found else None

    @property
    def is_floating(self) -> bool:
        """True for the types that have NaN."""
        return self.name in ("float", "double")

    @property
    def arrow(self) -> pa.DataType | None:
        """The Arrow type of its values before they are written; None if the type is unsupported."""
        if self.decimal:
            return pa.decimal128(*self.decimal)
        if self.fixed_bytes:
            return pa.binary(self.fixed_bytes)
        return _ARROW.get(self.name)


@dataclass(frozen=True, slots=True)
class Struct:
    """Named fields in order; a document may have others beside those of an open one, and nobody asks for them."""

    fields: tuple["Field", ...]
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of one element field."""

    element: "Field"

    @property
    def fields(self) -> tuple["Field", ...]:
        """The element."""
        return (self.element,)


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map; its key is always required."""

    key: "Field"
    value: "Field"

    @property
    def fields(self) -> tuple["Field", ...]:
        """Key and value."""
        return self.key, self.value


_GROUPS: Mapping[type, tuple[str, ...]] = {Struct: (), ListOf: ("list",), MapOf: ("key_value",)}
"""The group that Parquet puts around the parts of a list or map."""

Nested = Struct | ListOf | MapOf
Type = Primitive | Nested


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct, the element of a list, or the key or value of a map.

    Attributes:
        is_exact: True if a value of a document that does not fit is never read as NULL, though it is optional.
    """

    field_id: int
    name: str
    required: bool
    type: Type
    is_exact: bool = False

    @property
    def forgives(self) -> bool:
        """True if a value that does not fit can be NULL."""
        return not self.required and not self.is_exact


@dataclass(frozen=True, slots=True)
class Leaf:
    """One Parquet column.

    Attributes:
        path: Names from the top, for messages.
        parquet_path: Its name in the Parquet file.
        indices: Positions from the top through structs; meaningless below a list or map.
        repeated: True below a list or map.
    """

    field_id: int
    type: Primitive
    path: tuple[str, ...]
    parquet_path: str
    indices: tuple[int, ...]
    repeated: bool


def exactly(field: Field) -> Field:
    """The field, of which no part is forgiven, and no rest kept."""
    match field.type:
        case Primitive():
            kind: Type = field.type
        case Struct(fields):
            kind = Struct(tuple(map(exactly, fields)), is_open=True)
        case ListOf(element):
            kind = ListOf(exactly(element))
        case MapOf(key, value):
            kind = MapOf(exactly(key), exactly(value))
    return replace(field, type=kind, is_exact=True)


def holds_binary(kind: Type) -> bool:
    """True for BINARY, and for a nested type with it."""
    if isinstance(kind, Primitive):
        return kind.name == "binary"
    return any(holds_binary(field.type) for field in kind.fields)


@lru_cache(maxsize=64)
def parse_schema(text: str) -> Struct:
    """Parse Iceberg's JSON form of a schema; raises WriteError for an unsupported type."""
    return _parse_struct(json.loads(text), ())


def arrow_schema(schema: Struct, *, annotated: bool = False) -> pa.Schema:
    """Arrow schema with ``PARQUET:field_id`` at every level; `annotated` gives uuids the extension type, to write."""
    return pa.schema([arrow_field(field, annotated=annotated) for field in schema.fields])


def arrow_field(field: Field, *, annotated: bool = False) -> pa.Field:
    """One field as Arrow, with field ids."""
    kind = arrow_type(field.type, annotated=annotated)
    return pa.field(field.name, kind, nullable=not field.required, metadata={FIELD_ID_KEY: str(field.field_id)})


def arrow_type(kind: Type, *, annotated: bool = False) -> pa.DataType:
    """A type as Arrow."""
    match kind:
        case Primitive(name):
            return pa.uuid() if annotated and name == "uuid" else kind.arrow
        case Struct(fields):
            return pa.struct([arrow_field(field, annotated=annotated) for field in fields])
        case ListOf(element):
            return pa.list_(arrow_field(element, annotated=annotated))
        case MapOf():
            return pa.map_(*(arrow_field(part, annotated=annotated) for part in kind.fields))


def leaves(schema: Nested) -> tuple[Leaf, ...]:
    """Leaf columns in the order of Parquet's columns."""
    return tuple(_leaves(schema, (), (), (), repeated=False))


@lru_cache(maxsize=1024)  # it is asked again and again for what does not fit
def sql_type_of(kind: Type) -> str:
    """A type in Spark's spelling, for messages; with Iceberg's name if Spark does not have it."""
    text = sql_type(arrow_type(kind, annotated=True))
    if isinstance(kind, Primitive) and (kind.name == "uuid" or kind.fixed_bytes is not None):
        return f"{text} ({kind.name})"
    return text


def _leaves(
    kind: Nested, path: tuple[str, ...], groups: tuple[str, ...], indices: tuple[int, ...], *, repeated: bool
) -> Iterator[Leaf]:
    in_list = repeated or not isinstance(kind, Struct)
    for index, field in enumerate(kind.fields):
        below, within, at = (*path, field.name), (*groups, *_GROUPS[type(kind)], field.name), (*indices, index)
        if isinstance(field.type, Primitive):
            yield Leaf(field.field_id, field.type, below, ".".join(within), at, in_list)
        else:
            yield from _leaves(field.type, below, within, at, repeated=in_list)


def _parse_type(document: Any, path: tuple[str, ...]) -> Type:
    if isinstance(document, str):
        if Primitive(document).arrow is None:
            raise _unwritable(path, document)
        return Primitive(document)
    match document["type"]:
        case "list":
            return ListOf(_parse_part(document, "element", path, required=document["element-required"]))
        case "map":
            key = _parse_part(document, "key", path, required=True)
            return MapOf(key, _parse_part(document, "value", path, required=document["value-required"]))
        case _:
            return _parse_struct(document, path)


def _parse_struct(document: Mapping[str, Any], path: tuple[str, ...]) -> Struct:
    if path and not document["fields"]:  # a table may have no columns yet
        raise _unwritable(path, "struct without fields")
    return Struct(
        tuple(
            Field(field["id"], field["name"], field["required"], _parse_type(field["type"], (*path, field["name"])))
            for field in document["fields"]
        )
    )


def _parse_part(document: Mapping[str, Any], part: str, path: tuple[str, ...], *, required: bool) -> Field:
    return Field(document[f"{part}-id"], part, required, _parse_type(document[part], (*path, part)))


def _unwritable(path: tuple[str, ...], name: str) -> Exception:
    return schema_mismatch(
        f"Column {shown('.'.join(path))!r} of the table has type {shown(name)}, which lakesink cannot write.",
        action="Drop the column, or use another table: lakesink writes format version 2, and no empty structs.",
    )
