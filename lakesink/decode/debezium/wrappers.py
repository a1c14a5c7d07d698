"""Takes events out of the wrapper of Kafka Connect's JSON converter: ``{"schema": ..., "payload": ...}``. Pure.

The schema is the longer part of such a document, and the same in many of them. So it is read once, and cut off as a
prefix from all texts that begin with it. This changes no document: a text is ``{"schema":S,"payload":P}`` exactly if it
begins and ends so, and S and P are JSON. Whether P is, the reader of the payloads finds out.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.avro.schema import MEANT, PRIMITIVES, ArrayOf, Kind, MapTo, Record, Scalar, Union, WriterSchema
from lakesink.decode.decimals import MOST_DIGITS
from lakesink.decode.json_raw import end_of_nested, members
from lakesink.rows.scalars import FALSE

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
BYTES = "bytes"
_OF_CONNECT = {"Date": "date", "Time": "time-millis"}
"""Types that have names in Avro too."""
_SIDES = ("after", "before")


@dataclass(frozen=True, slots=True)
class ConnectType:
    """A column's type.

    Attributes:
        type: Kafka Connect's own name: ``int32``, ``string``, ``bytes``, ``struct``.
        name: Name of the meaning, ``io.debezium.time.Date``; empty if it has none.
        scale: Of a decimal, and `precision`, if it has one.
        items: Of an array, or the values of a map.
        fields: Of a struct.
    """

    type: str
    name: str = ""
    scale: int = 0
    precision: int = MOST_DIGITS
    items: "ConnectType | None" = None
    fields: Mapping[str, "ConnectType"] = field(default_factory=dict)

    @property
    def is_decimal(self) -> bool:
        """True if its values are decimals in Base64."""
        return self.name in (DECIMAL, VARIABLE_SCALE)

    @property
    def holds_bytes(self) -> bool:
        """True if it is bytes, as a decimal is too, or contains them."""
        parts = [*self.fields.values(), *([self.items] if self.items is not None else [])]
        return self.type == BYTES or self.is_decimal or any(part.holds_bytes for part in parts)


Types = Mapping[str, ConnectType] | None
"""Types by column; None for documents without a schema."""


@lru_cache(maxsize=256)
def types_in(schema: str) -> Mapping[str, ConnectType]:
    """The types of the columns that a schema describes: those of an envelope's rows, or of a key; raises ValueError."""
    try:
        parts = {part["field"]: part for part in json.loads(schema)["fields"]}
        row = next((parts[side] for side in _SIDES if side in parts and "op" in parts), None)
        columns = parts.values() if row is None else row["fields"]
        return {column["field"]: _type(column) for column in columns}
    except (KeyError, TypeError, RecursionError):
        raise ValueError("not a schema of Kafka Connect") from None


def _type(column: Mapping[str, Any]) -> ConnectType:
    parameters = column.get("parameters") or {}
    items = column.get("items") or column.get("values")
    return ConnectType(
        str(column["type"]),
        str(column.get("name") or ""),
        int(parameters.get("scale", 0)),
        int(parameters.get("connect.decimal.precision", MOST_DIGITS)),
        None if items is None else _type(items),
        {part["field"]: _type(part) for part in column.get("fields") or ()},
    )


def written_with(types: Mapping[str, ConnectType]) -> WriterSchema:
    """The schema of rows with these types in the terms of Avro, which has names for all of them."""
    return WriterSchema(_kind(ConnectType("struct", fields=types)), {})


def _kind(one: ConnectType) -> Kind:
    name = _SCALARS.get(one.type, one.type)
    if one.name == DECIMAL:
        return Scalar(BYTES, "decimal", scale=one.scale, precision=one.precision)
    if name in PRIMITIVES:
        return Scalar(name, _MEANT.get((name, one.name)))
    if one.type == "struct":
        return Record(tuple((name, _kind(part)) for name, part in one.fields.items()))
    item = Union(()) if one.items is None else _kind(one.items)
    return MapTo(item) if one.type == "map" else ArrayOf(item)


_SCALARS = {"int8": "int", "int16": "int", "int32": "int", "int64": "long", "float32": "float", "float64": "double"}
_MEANT = {**MEANT, **{("int", f"org.apache.kafka.connect.data.{name}"): one for name, one in _OF_CONNECT.items()}}

_SCHEMA, _PAYLOAD = '{"schema":', ',"payload":'
_MOST_SCHEMAS = 32
"""Schemas that are cut off as prefixes. Documents with others are opened one by one."""


@dataclass(frozen=True, slots=True)
class Payloads:
    """Events with types in common, and the positions of their documents."""

    positions: pa.Array
    texts: pa.StringArray
    types: Types


def unwrapped(texts: pa.StringArray) -> list[Payloads]:
    """The events in compact wrappers, by schema, and all other documents as they are."""
    wrapped = pc.fill_null(pc.starts_with(texts, _SCHEMA), FALSE)
    left = pc.indices_nonzero(wrapped).cast(pa.int64())
    found: list[Payloads] = []
    while len(left) and len(found) < _MOST_SCHEMAS:
        chosen = texts if len(left) == len(texts) else texts.take(left)
        prefix, types = _wrapper(chosen[0].as_py())
        fits = pc.and_(pc.starts_with(chosen, prefix), pc.ends_with(chosen, "}"))
        if not prefix or not fits[0].as_py():
            break
        others = left.filter(pc.invert(fits))
        chosen, positions = (chosen.filter(fits), left.filter(fits)) if len(others) else (chosen, left)
        payloads = pc.binary_slice(chosen.cast(pa.binary()), len(prefix.encode()), -1)
        found.append(Payloads(positions, payloads.cast(pa.string()), types))
        left = others
    others = pa.concat_arrays([pc.indices_nonzero(pc.invert(wrapped)).cast(pa.int64()), left])
    if len(others) or not found:
        found.append(Payloads(others, texts if len(others) == len(texts) else texts.take(others), None))
    return found


def opened(texts: Sequence[str], positions: Sequence[int]) -> list[Payloads]:
    """The events in wrappers of any spelling, by schema; the texts are JSON objects, some of them no wrappers."""
    groups: dict[str, tuple[list[int], list[str]]] = {}
    for text, position in zip(texts, positions, strict=True):
        parts = dict(reversed(members(text)))
        if "schema" in parts and "payload" in parts:
            places, payloads = groups.setdefault(parts["schema"], ([], []))
            places.append(position)
            payloads.append(parts["payload"])
    return [
        Payloads(pa.array(places, pa.int64()), pa.array(payloads, pa.string()), _types(schema))
        for schema, (places, payloads) in groups.items()
    ]


def _wrapper(text: str) -> tuple[str, Types]:
    """The prefix of a document, up to its payload, and the types; an empty prefix if it is no compact wrapper."""
    start = len(_SCHEMA)
    if not text.startswith("{", start):
        return "", None
    try:
        end = end_of_nested(text, start)
        types = types_in(text[start:end])
    except ValueError:
        return "", None
    return (text[:end] + _PAYLOAD, types) if text.startswith(_PAYLOAD, end) else ("", None)


def _types(schema: str) -> Types:
    """The types in a schema. One that cannot be read is one without columns: no value is guessed."""
    if not schema.startswith("{"):
        return None
    try:
        return types_in(schema)
    except ValueError:
        return {}
