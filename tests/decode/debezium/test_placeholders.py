"""Placeholders of values that PostgreSQL did not log, in the form that Debezium gives them in each type of column."""

import base64
import hashlib
import json
import struct
import uuid
from typing import Any

import pytest

from lakesink.decode.documents import MOST_EXPLAINED
from lakesink.rows.plan import BinaryEncoding
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type
from tests.decode.debezium.events import batch, changes_of, decoded, decoder, event, table, text, wrapped
from tests.decode.debezium.test_avro_events import event as message
from tests.decode.debezium.test_avro_events import named, read

TEXT = "__debezium_unavailable_value"
NUMBERS = [95, 95, 100, 101, 98, 101, 122, 105, 117, 109, 95, 117, 110, 97, 118, 97, 105, 108, 97, 98, 108, 101]
NUMBERS += [95, 118, 97, 108, 117, 101]
UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
"""Of Debezium's own test for arrays of UUIDs."""
HEX = "5f5f646562657a69756d5f756e617661696c61626c655f76616c7565"
BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="


EWKB = struct.Struct("<BIIdd")
GEOMETRY, GEOGRAPHY = (
    EWKB.pack(1, 0x20000001, 4326, *point) for point in ((-99999999, -99999999), (179.999999, 89.999999))
)
"""PostGIS's bytes of POINT with an SRID; the points are those of Debezium's UnchangedToastedPlaceholder."""
SPATIAL = Struct(
    (
        Field(51, "wkb", required=False, type=Primitive("binary")),
        Field(52, "srid", required=False, type=Primitive("int")),
    )
)


def spatial(point: bytes) -> dict[str, Any]:
    return {"wkb": base64.b64encode(point).decode(), "srid": 4326}


def array(kind: str) -> ListOf:
    return ListOf(Field(9, "element", required=False, type=Primitive(kind)))


TEXTS = MapOf(
    Field(8, "key", required=True, type=Primitive("string")),
    Field(9, "value", required=False, type=Primitive("string")),
)
JSON: dict[str, tuple[Type | str, Any]] = {
    "text": ("string", TEXT),
    "text[] as text": ("string", [TEXT]),
    "uuid[] as text": ("string", [UUID]),
    "bytea[] as text, Base64": ("string", [BASE64]),
    "bytea[] as text, hex": ("string", [HEX]),
    "int[] as text": ("string", NUMBERS),
    "geometry as text": ("string", spatial(GEOMETRY)),
    "geography as text": ("string", spatial(GEOGRAPHY)),
    "geometry": (SPATIAL, spatial(GEOMETRY)),
    "geography": (SPATIAL, spatial(GEOGRAPHY)),
    "double[] as text": ("string", [float(one) for one in NUMBERS]),
    "hstore as text": ("string", {TEXT: TEXT}),
    "json of hstore": ("string", json.dumps({TEXT: TEXT}, separators=(",", ":"))),
    "bytes as text, Base64": ("string", BASE64),
    "bytes as text, hex": ("string", HEX),
    "text[]": (array("string"), [TEXT]),
    "json[]": (array("string"), ["{}", TEXT]),
    "uuid[] of texts": (array("string"), [UUID]),
    "uuid[]": (array("uuid"), [UUID]),
    **{f"{kind}[]": (array(kind), NUMBERS) for kind in ("int", "long", "float", "double", "decimal(9, 2)")},
    "text as boolean[]": (array("boolean"), TEXT),
    "text[] as boolean[]": (array("boolean"), [TEXT]),
    "uuid[] as boolean[]": (array("boolean"), [UUID]),
    "hstore": (TEXTS, {TEXT: TEXT}),
    "within a struct": (Struct((Field(7, "a", required=False, type=array("int")),)), {"a": NUMBERS}),
    "int[] as text[]": (array("string"), NUMBERS),
    "double[] as text[]": (array("string"), [float(one) for one in NUMBERS]),
    "int[][] as text[][]": (ListOf(Field(6, "element", required=False, type=array("string"))), [NUMBERS]),
    "geometry as a map": (TEXTS, spatial(GEOMETRY)),
    "geometry, its bytes as text": (
        Struct((Field(7, "wkb", required=False, type=Primitive("string")),)),
        spatial(GEOMETRY),
    ),
}
BYTES = TEXT.encode()
POINT_IN_AVRO = {
    "type": "record",
    "name": "Geometry",
    "fields": [{"name": "wkb", "type": "bytes"}, {"name": "srid", "type": ["null", "int"]}],
}
ITEMS: dict[str, tuple[Type | str, Any, Any]] = {
    "text": ("string", "string", TEXT),
    "bytes": ("binary", "bytes", BYTES),
    "text[]": (array("string"), {"type": "array", "items": "string"}, [TEXT]),
    "uuid[] of texts": (array("string"), {"type": "array", "items": "string"}, [UUID]),
    "uuid[]": (array("uuid"), {"type": "array", "items": "string"}, [UUID]),
    "bytes[]": (array("binary"), {"type": "array", "items": "bytes"}, [BYTES]),
    **{
        name: (SPATIAL, POINT_IN_AVRO, {"wkb": point, "srid": 4326})
        for name, point in (("geometry", GEOMETRY), ("geography", GEOGRAPHY))
    },
    "int[]": (array("int"), {"type": "array", "items": "int"}, NUMBERS),
    "long[]": (array("long"), {"type": "array", "items": ["null", "long"]}, NUMBERS),
    "double[]": (array("double"), {"type": "array", "items": "double"}, NUMBERS),
    "decimal[] of numbers": (array("decimal(9, 2)"), {"type": "array", "items": "long"}, NUMBERS),
    "hstore": (TEXTS, {"type": "map", "values": "string"}, {TEXT: TEXT}),
    "date[]": (array("date"), {"type": "array", "items": named("int", "io.debezium.time.Date")}, NUMBERS),
    **{
        f"{kind}[]": (
            array("time" if kind.endswith("Time") else "timestamp"),
            {"type": "array", "items": named("long", f"io.debezium.time.{kind}")},
            NUMBERS,
        )
        for kind in ("Timestamp", "MicroTimestamp", "MicroTime")
    },
}


def test_the_forms_are_those_of_the_text() -> None:
    assert bytes(NUMBERS) == BYTES == bytes.fromhex(HEX) == base64.b64decode(BASE64)
    assert uuid.UUID(bytes=hashlib.md5(BYTES, usedforsecurity=False).digest(), version=3) == uuid.UUID(UUID)


@pytest.mark.parametrize("form", JSON)
@pytest.mark.parametrize("bare", [True, False], ids=["bare", "with-schema"])
def test_a_placeholder_in_json_never_becomes_a_value(form: str, bare: bool) -> None:  # noqa: FBT001 - pytest's
    kind, value = JSON[form]
    payloads = [event("c", {"id": 2}), event("u", {"id": 1, "x": value})]
    documents = payloads if bare else [wrapped(one, id={"type": "int64"}) for one in payloads]
    changes, found = decoded(table(x=kind), *documents, binary_encoding=BinaryEncoding.BASE64)
    assert (changes, found.malformed) == ([], 1)
    assert found.misfits[0].column == "x"
    assert found.misfits[0].expected.endswith("; set REPLICA IDENTITY FULL")
    assert found.misfits[0].found.startswith("Debezium's placeholder")


@pytest.mark.parametrize("form", ITEMS)
def test_a_placeholder_in_avro_never_becomes_a_value(form: str) -> None:
    kind, written, value = ITEMS[form]
    fields = (("id", "long"), ("x", ["null", written]))
    changes, found = read(table(x=kind), message("u", {"id": 1, "x": value}, fields=fields), fields=fields)
    assert (changes, found.malformed) == ([], 1)
    assert found.misfits[0].expected.endswith("; set REPLICA IDENTITY FULL")


REFUSING: dict[str, Any] = {
    "int": "int",
    **{f"{kind}[]": array(kind) for kind in ("boolean", "date", "time", "timestamp", "binary", "uuid")},
    "struct": SPATIAL,
    "map": MapOf(
        Field(8, "key", required=True, type=Primitive("string")),
        Field(9, "value", required=False, type=Primitive("int")),
    ),
}


def test_a_placeholder_is_rescued_neither_from_a_column_of_another_type_nor_from_a_key_without_a_column() -> None:
    values = (TEXT, [TEXT], NUMBERS, {TEXT: TEXT}, {"a": NUMBERS}, spatial(GEOMETRY))
    rows = [{"id": 1, name: value} for name in (*REFUSING, "no column") for value in values]
    documents = [json.dumps(event("u", row)) for row in rows]
    documents += [json.dumps(event("d", None, row), separators=(",", ":")) for row in rows]
    found = decoder(table("rest", **REFUSING), rescue_column="rest", soft_deletes=True)
    aside: list[int] = []
    found.put_aside, found.explained = lambda _, faults: aside.extend(faults), MOST_EXPLAINED
    assert changes_of(found, [batch([text(one) for one in documents])]) == []
    assert len(aside) == len(documents)


@pytest.mark.parametrize(("name", "column"), [("x", "x"), ("no column", "")])
def test_a_placeholder_that_is_not_rescued_is_named(name: str, column: str) -> None:
    changes, found = decoded(table("rest", x="int"), event("u", {"id": 1, name: NUMBERS}), rescue_column="rest")
    [one] = found.misfits
    assert (changes, one.column) == ([], column)
    assert one.found.startswith("Debezium's placeholder")
    assert one.expected.endswith("; set REPLICA IDENTITY FULL")


@pytest.mark.parametrize("form", ["bytes", "int[]", "hstore", "geometry"])
def test_a_placeholder_in_avro_is_not_rescued_from_a_field_without_a_column(form: str) -> None:
    _, written, value = ITEMS[form]
    fields = (("id", "long"), ("x", ["null", written]))
    one = message("u", {"id": 1, "x": value}, fields=fields)
    changes, found = read(table("rest"), one, fields=fields, rescue_column="rest")
    assert (changes, found.malformed) == ([], 1)
    assert found.misfits[0].found.startswith("Debezium's placeholder")


@pytest.mark.parametrize("value", [None, [True] * len(NUMBERS), [False, None]])
def test_a_boolean_array_that_the_log_does_not_have_comes_as_null_and_no_array_stands_for_it(value: Any) -> None:
    """No Debezium has a placeholder for it: debezium/debezium#7815 proposed an item a byte, and took that back."""
    columns, row = table(x=array("boolean")), {"id": 1, "x": value}
    fields = (("id", "long"), ("x", ["null", {"type": "array", "items": ["null", "boolean"]}]))
    [(_, from_json, _)], _ = decoded(columns, event("u", row))
    [(_, from_avro, _)], _ = read(columns, message("u", row, fields=fields), fields=fields)
    assert from_json["x"] == from_avro["x"] == value


def test_the_numbers_of_a_placeholder_are_no_booleans() -> None:
    changes, found = decoded(table(x=array("boolean")), event("u", {"id": 1, "x": NUMBERS}))
    assert (changes, found.malformed) == ([], 1)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (array("int"), NUMBERS[:-1]),
        (array("int"), [*NUMBERS, 1]),
        (array("int"), [*NUMBERS[:-1], None]),
        (array("int"), [*NUMBERS[:-1], 102]),
        (array("int"), [None] * len(NUMBERS)),
        (array("string"), [TEXT[:-1], f"{TEXT}s"]),
        (array("string"), [str(one) for one in NUMBERS[:-1]]),
        (array("string"), ["95", *map(str, NUMBERS[:-1])]),
        ("string", f"see {TEXT}"),
        ("string", json.dumps(spatial(EWKB.pack(1, 0x20000001, 4326, 179.0, 89.0)), separators=(",", ":"))),
        ("string", json.dumps(NUMBERS[:-1], separators=(",", ":"))),
        ("binary", BASE64[:-4]),
    ],
)
def test_a_value_that_only_resembles_a_placeholder_is_stored(kind: Type | str, value: Any) -> None:
    [(_, row, _)], _ = decoded(table(x=kind), event("u", {"id": 1, "x": value}), binary_encoding=BinaryEncoding.BASE64)
    assert row["x"] == (base64.b64decode(value) if kind == "binary" else value)
