"""Messages in Confluent's wire format as others write them, and what becomes of them."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import pyarrow as pa

from lakesink.decode.avro.messages import MessageReader
from lakesink.decode.avro.schema import parse_writer_schema
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type

MALFORMED = "malformed"


def record(*fields: tuple[str, Any], name: str = "Event") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": column, "type": kind} for column, kind in fields]}


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


def encoded(schema: Any, value: Any) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return body.getvalue()


def without_meaning(schema: Any) -> Any:
    """The schema without logical types, so that values are written as they are."""
    if isinstance(schema, dict):
        return {key: without_meaning(part) for key, part in schema.items() if key != "logicalType"}
    return [without_meaning(part) for part in schema] if isinstance(schema, list) else schema


def message(body: bytes, schema_id: int = 7) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


def optional(number: int, name: str, kind: Type | str) -> Field:
    return Field(number, name, required=False, type=Primitive(kind) if isinstance(kind, str) else kind)


def columns(**kinds: Type | str) -> Struct:
    return Struct(tuple(optional(number, name, kind) for number, (name, kind) in enumerate(kinds.items(), 1)))


def list_of(kind: Type | str) -> ListOf:
    return ListOf(optional(20, "element", kind))


def map_to(kind: Type | str) -> MapOf:
    return MapOf(Field(21, "key", required=True, type=Primitive("string")), optional(22, "value", kind))


def decoded(schemas: Mapping[int, Any], table: Struct, messages: Sequence[bytes | None]) -> list[Any]:
    """Each message as a row, or `MALFORMED`."""
    parsed = {number: parse_writer_schema([json.dumps(schema)]) for number, schema in schemas.items()}
    found = MessageReader(parsed.get).documents(pa.array(messages, pa.binary()), table)
    found.values.validate(full=True)
    misfits = [False] * len(messages) if found.misfits is None else found.misfits.to_pylist()
    rows = found.values.to_pylist()
    return [MALFORMED if wrong else row for wrong, row in zip(misfits, rows, strict=True)]
