"""Bytes in documents: a text is taken for bytes only if an option, or the writer's schema, says how it spells them."""

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, ListType, LongType, NestedField

from lakesink.decode.avro.messages import MessageReader
from lakesink.decode.avro.schema import parse_writer_schema
from lakesink.decode.json_values import JsonReader
from lakesink.rows.plan import BinaryEncoding
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type
from lakesink.settings.relations import Entry
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import task_plan
from lakesink_protocol.errors import SettingsError
from testkit.builders import Lake, Stream
from tests.decode.avro.messages import encoded, message, record
from tests.decode.debezium.events import decoded, event, table, wrapped
from tests.decode.debezium.test_avro_events import event as avro_event
from tests.decode.debezium.test_avro_events import read

HEX, BASE64 = BinaryEncoding.HEX, BinaryEncoding.BASE64
BINARY = Primitive("binary")
AMBIGUOUS = "deadbeef"
READINGS = {None: None, HEX: b"\xde\xad\xbe\xef", BASE64: base64.b64decode(AMBIGUOUS)}
"""What a text that is both is by each option; None if it is refused."""
encodings = pytest.mark.parametrize("encoding", READINGS, ids=str)


def column(kind: Type) -> Struct:
    return Struct((Field(1, "c", type=kind, required=False),))


def of_json(text: Any, encoding: BinaryEncoding | None, kind: Type = BINARY) -> Any:
    documents = pa.array([json.dumps({"c": text}).encode()], pa.binary())
    found = JsonReader(encoding=encoding).documents(documents, column(kind))
    return None if found.misfits is not None and found.misfits[0].as_py() else found.values[0]["c"].as_py()


def of_avro(text: Any, encoding: BinaryEncoding | None, kind: Type = BINARY, written: Any = "string") -> Any:
    schema = record(("c", written))
    reader = MessageReader({7: parse_writer_schema([json.dumps(schema)])}.get, encoding=encoding)
    found = reader.documents(pa.array([message(encoded(schema, {"c": text}))], pa.binary()), column(kind))
    return None if found.misfits is not None and found.misfits[0].as_py() else found.values[0]["c"].as_py()


@encodings
@pytest.mark.parametrize("read_one", [of_json, of_avro])
def test_a_text_that_is_both_is_what_the_option_says(read_one: Any, encoding: BinaryEncoding | None) -> None:
    assert read_one(AMBIGUOUS, encoding) == READINGS[encoding]


@given(st.binary(max_size=40), st.sampled_from([HEX, BASE64]))
def test_bytes_are_the_very_bytes_that_were_spelled(value: bytes, encoding: BinaryEncoding) -> None:
    text = value.hex() if encoding is HEX else base64.b64encode(value).decode()
    assert of_json(text, encoding) == of_avro(text, encoding) == value
    assert of_json(text, None) is None


@pytest.mark.parametrize("text", ["0", "0g", " 00", "00 ", "0x00", "\\x00", "é0"])
@pytest.mark.parametrize("read_one", [of_json, of_avro])
def test_what_is_no_hex_is_malformed(read_one: Any, text: str) -> None:
    assert read_one(text, HEX) is None


@encodings
def test_nested_texts_follow_the_option_too(encoding: BinaryEncoding | None) -> None:
    element = Field(2, "element", required=False, type=BINARY)
    entries = MapOf(Field(3, "key", required=True, type=BINARY), Field(4, "value", required=False, type=BINARY))
    found = READINGS[encoding]
    assert of_json([AMBIGUOUS], encoding, ListOf(element)) == (None if found is None else [found])
    assert of_json({AMBIGUOUS: AMBIGUOUS}, encoding, entries) == (None if found is None else [(found, found)])
    array = {"type": "array", "items": "string"}
    assert of_avro([AMBIGUOUS], encoding, ListOf(element), array) == (None if found is None else [found])


@encodings
def test_bytes_of_avro_and_texts_of_a_fixed_length_need_no_option(encoding: BinaryEncoding | None) -> None:
    assert of_avro(b"\xff\0", encoding, written="bytes") == b"\xff\0"
    text = "ffffffff" if encoding is HEX else "/////w=="
    assert of_json(text, encoding, Primitive("fixed[4]")) == b"\xff" * 4


@encodings
@pytest.mark.parametrize("form", ["bare", "string", "bytes", "array of bytes", "avro string"])
def test_an_event_says_how_it_spells_bytes_or_the_option_does(form: str, encoding: BinaryEncoding | None) -> None:
    kind: Type = ListOf(Field(2, "element", required=False, type=BINARY)) if form.startswith("array") else BINARY
    value = [AMBIGUOUS] if form.startswith("array") else AMBIGUOUS
    row, settings = {"id": 1, "c": value}, {"binary_encoding": encoding}
    types = {"array of bytes": {"type": "array", "items": {"type": "bytes"}}}.get(form, {"type": form})
    match form:
        case "avro string":
            fields = (("id", "long"), ("c", "string"))
            changes, found = read(table(c=kind), avro_event("c", row, fields=fields), fields=fields, **settings)
        case "bare":
            changes, found = decoded(table(c=kind), event("c", row), **settings)
        case _:
            changes, found = decoded(table(c=kind), wrapped(event("c", row), id={"type": "int64"}, c=types), **settings)
    certain = form.endswith("bytes")
    expected = READINGS[BASE64 if certain else encoding]
    if expected is None:
        assert changes == []
        assert "binary_encoding='base64' or 'hex'" in found.misfits[0].expected
    else:
        assert changes[0][1]["c"] == ([expected] if form.startswith("array") else expected)


@pytest.mark.parametrize("nested", [False, True])
def test_json_for_a_binary_column_needs_the_option_before_a_batch_starts(tmp_path: Path, nested: bool) -> None:  # noqa: FBT001 - pytest's
    kind = ListType(9, BinaryType(), element_required=False) if nested else BinaryType()
    fields = [NestedField(1, "id", LongType()), NestedField(2, "raw", kind), NestedField(3, "_kafka_key", BinaryType())]
    lake = Lake.make(tmp_path, schema=Schema(*fields))
    stream = Stream(lake)
    batch = stream.batch(0)
    with pytest.raises(SettingsError, match=r"LAKESINK_OPTION_MISSING.*'raw'") as refused:
        task_plan(lake.table(), batch, stream.key, Settings.parse({"decode": "json"}, entry=Entry.APPEND))
    assert "binary_encoding='base64'" in refused.value.action
    for options in ({"decode": "json", "binary_encoding": "hex"}, {}):
        plan = task_plan(lake.table(), batch, stream.key, Settings.parse(options, entry=Entry.APPEND))
        assert plan.binary_encoding == options.get("binary_encoding")


def test_the_option_needs_documents() -> None:
    with pytest.raises(SettingsError, match="binary_encoding needs decode"):
        Settings.parse({"binary_encoding": "hex", "sink_id": "a", "checkpoint": "/ck"})
