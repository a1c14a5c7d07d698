"""Avro's schemas are read by its own rules of names and of what is passed over."""

import json
from typing import Any

import pytest

from lakesink.decode.avro.schema import (
    ArrayOf,
    Enumeration,
    Record,
    Reference,
    Scalar,
    SchemaInvalid,
    Union,
    parse_writer_schema,
)
from tests.decode.avro.messages import columns, decoded, encoded, logical, message, record


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("long", Scalar("long")),
        ({"type": "string", "avro.java.string": "String"}, Scalar("string")),
        ({"type": {"type": "array", "items": "int"}}, ArrayOf(Scalar("int"))),
        (["null", "int"], Union((Scalar("null"), Scalar("int")))),
        (logical("long", "timestamp-micros"), Scalar("long", "timestamp-micros")),
        (logical("int", "timestamp-micros"), Scalar("int")),
        (logical("string", "uuid"), Scalar("string")),
        (logical("bytes", "decimal", precision=9, scale=2), Scalar("bytes", "decimal", scale=2, precision=9)),
        (logical("bytes", "decimal", precision=9), Scalar("bytes", "decimal", precision=9)),
        (logical("bytes", "decimal", precision=1, scale=2), Scalar("bytes")),
        (logical("bytes", "decimal"), Scalar("bytes")),
        (logical("fixed", "duration", name="D", size=12), Scalar("fixed", size=12)),
        (logical("fixed", "uuid", name="D", size=15), Scalar("fixed", size=15)),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}, Enumeration(("A",))),
        (record(("a", "int")) | {"doc": "of no use", "aliases": ["B"]}, Record((("a", Scalar("int")),))),
    ],
)
def test_what_a_schema_says_is_kept_and_what_does_not_matter_is_not(document: Any, expected: Any) -> None:
    assert parse_writer_schema([json.dumps(document)]).root == expected


def test_a_primitive_type_may_stand_there_bare() -> None:
    assert parse_writer_schema(["long"]).root == Scalar("long")


def test_names_are_found_in_their_namespace_and_in_schemas_before() -> None:
    money = {"type": "fixed", "name": "Money", "namespace": "shop", "size": 8}
    order = {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "price", "type": "Money"},
            {"name": "tax", "type": ["null", "shop.Money"]},
            {"name": "part", "type": ["null", "Order"]},
        ],
    }
    parsed = parse_writer_schema([json.dumps(money), json.dumps(order)])
    found = Reference("shop.Money")
    assert parsed.root == Record(
        (
            ("price", found),
            ("tax", Union((Scalar("null"), found))),
            ("part", Union((Scalar("null"), Reference("shop.Order")))),
        )
    )
    assert parsed.named["shop.Money"] == Scalar("fixed", size=8)


def test_a_type_that_was_named_before_is_read_where_its_name_stands() -> None:
    point = record(("x", "int"), name="Point")
    schema = record(("a", point), ("b", ["null", "Point"]))
    body = encoded(schema, {"a": {"x": 1}, "b": {"x": 2}})
    wanted = columns(a=columns(x="int"), b=columns(x="int"))
    assert decoded({7: schema}, wanted, [message(body)]) == [{"a": {"x": 1}, "b": {"x": 2}}]


INVALID = [
    "",
    "{",
    "unknown",
    '"unknown"',
    "7",
    "null ",
    "{}",
    '{"type": "array"}',
    '{"type": "record", "name": "A"}',
    '{"type": "fixed", "name": "A", "size": -1}',
    '{"type": "fixed", "name": "A", "size": "1"}',
    '{"type": "record", "name": "A", "fields": [{"name": "a"}]}',
    '{"type": "record", "name": "A", "fields": [{"name": "a", "type": "B"}]}',
    '{"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
    "[" * 100_000 + "]" * 100_000,
]


@pytest.mark.parametrize("text", INVALID, ids=lambda text: text[:30])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaInvalid):
        parse_writer_schema([text])
