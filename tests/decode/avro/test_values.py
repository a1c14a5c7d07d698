"""Avro's values become the table's exactly, or are malformed, whatever schema they were written with."""

import struct
from datetime import date, datetime, time
from decimal import Decimal
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lakesink.rows.schema import Type
from tests.decode.avro.messages import (
    MALFORMED,
    columns,
    decoded,
    encoded,
    list_of,
    logical,
    map_to,
    message,
    record,
    without_meaning,
)

LARGEST = 2**63 - 1
ENUM = {"type": "enum", "name": "Suit", "symbols": ["SPADES", "HEARTS"]}
PAIR = {"type": "fixed", "name": "Pair", "size": 2}
UUID_TEXT = "00000000-0000-0000-0000-00000000000f"
UUID_BYTES = bytes(15) + b"\x0f"
CENTS = logical("bytes", "decimal", precision=9, scale=2)
FIXED_PRICE = logical("fixed", "decimal", name="Price", size=3, precision=5, scale=1)
BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999_000, ZoneInfo("UTC"))
ARRAY_OR_MAP = ["null", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}]
MOMENT = datetime(2024, 2, 29, 12, 0, 0, 1, ZoneInfo("UTC"))
MICROS = 1_709_208_000_000_001


def one(kind: Any, value: Any, column: Type | str) -> Any:
    """A message with one field, decoded; the value as it is written, whatever it means."""
    schema = record(("c", kind))
    body = encoded(without_meaning(schema), {"c": value})
    [row] = decoded({7: schema}, columns(c=column), [message(body)])
    return row if row == MALFORMED else row["c"]


EXACT = [
    ("int", -(2**31), "int", -(2**31)),
    ("int", 2**31 - 1, "long", 2**31 - 1),
    ("long", LARGEST, "long", LARGEST),
    ("long", -LARGEST - 1, "long", -LARGEST - 1),
    ("long", 7, "int", 7),
    ("long", 2**31, "int", MALFORMED),
    ("int", 2**24, "float", 2.0**24),
    ("int", 2**24 + 1, "float", MALFORMED),
    ("long", 2**53, "double", 2.0**53),
    ("long", 2**53 + 1, "double", MALFORMED),
    ("long", LARGEST, "double", MALFORMED),
    ("long", -(2**63), "double", -(2.0**63)),
    ("long", 7, "decimal(9, 2)", Decimal("7.00")),
    ("long", 10**7, "decimal(9, 2)", MALFORMED),
    ("long", LARGEST, "decimal(38, 0)", Decimal(LARGEST)),
    ("float", 0.5, "float", 0.5),
    ("float", 0.5, "double", 0.5),
    ("float", float("nan"), "double", float("nan")),
    ("double", 0.1, "double", 0.1),
    ("double", 0.5, "float", 0.5),
    ("double", 0.1, "float", MALFORMED),
    ("double", 1e300, "float", MALFORMED),
    ("double", float("-inf"), "float", float("-inf")),
    ("double", float("nan"), "float", float("nan")),
    ("double", -0.0, "float", -0.0),
    ("boolean", True, "boolean", True),
    ("boolean", False, "boolean", False),
    ("string", "é", "string", "é"),
    ("string", "", "string", ""),
    ("string", "abcd", "binary", MALFORMED),
    ("bytes", b"\xc3\xa9", "string", "é"),
    ("bytes", b"\xff", "string", MALFORMED),
    ("bytes", b"\0\xff", "binary", b"\0\xff"),
    ("bytes", b"\0\xff", "fixed[2]", b"\0\xff"),
    ("bytes", b"\0\xff", "fixed[3]", MALFORMED),
    (PAIR, b"\0\xff", "binary", b"\0\xff"),
    (PAIR, b"\0\xff", "fixed[2]", b"\0\xff"),
    (PAIR, b"\0\xff", "fixed[3]", MALFORMED),
    (ENUM, "HEARTS", "string", "HEARTS"),
    ("string", UUID_TEXT, "uuid", UUID_BYTES),
    ("string", UUID_TEXT[1:], "uuid", MALFORMED),
    (logical("string", "uuid"), UUID_TEXT, "uuid", UUID_BYTES),
    (logical("string", "uuid"), UUID_TEXT, "string", UUID_TEXT),
    (logical("fixed", "uuid", name="Id", size=16), UUID_BYTES, "uuid", UUID_BYTES),
    (CENTS, b"\x04\xd2", "decimal(9, 2)", Decimal("12.34")),
    (CENTS, b"\xff", "decimal(9, 2)", Decimal("-0.01")),
    (CENTS, b"\x04\xd2", "decimal(9, 1)", MALFORMED),
    (CENTS, b"\x04\xd8", "decimal(9, 1)", Decimal("12.4")),
    (CENTS, b"\x04\xd2", "decimal(9, 4)", Decimal("12.3400")),
    (CENTS, b"\x04\xd2", "decimal(3, 2)", MALFORMED),
    (CENTS, b"", "decimal(9, 2)", MALFORMED),
    (CENTS, bytes(20) + b"\x04\xd2", "decimal(9, 2)", Decimal("12.34")),
    (CENTS, b"\xff" * 20, "decimal(9, 2)", Decimal("-0.01")),
    (CENTS, b"\xff" + b"\0" * 16, "decimal(38, 2)", MALFORMED),
    (CENTS, b"\x01" + bytes(16), "decimal(38, 2)", MALFORMED),
    (CENTS, b"\0\xff" + bytes(15), "decimal(38, 2)", MALFORMED),
    (CENTS, (10**38 - 1).to_bytes(16, "big"), "decimal(38, 2)", Decimal("9" * 36 + ".99")),
    (CENTS, (10**38).to_bytes(16, "big"), "decimal(38, 2)", MALFORMED),
    (CENTS, (1 - 10**38).to_bytes(16, "big", signed=True), "decimal(38, 2)", Decimal("-" + "9" * 36 + ".99")),
    (CENTS, (-(10**38)).to_bytes(16, "big", signed=True), "decimal(38, 2)", MALFORMED),
    (FIXED_PRICE, b"\xff\xff\xf6", "decimal(5, 1)", Decimal("-1.0")),
    (logical("bytes", "decimal", precision=50, scale=40), b"\0", "decimal(38, 38)", MALFORMED),
    (logical("int", "date"), 19782, "date", date(2024, 2, 29)),
    (logical("int", "time-millis"), 43_200_500, "time", time(12, 0, 0, 500_000)),
    (logical("long", "time-micros"), 86_399_999_999, "time", time(23, 59, 59, 999_999)),
    (logical("long", "time-micros"), 86_400_000_000, "time", MALFORMED),
    (logical("int", "time-millis"), -1, "time", MALFORMED),
    (logical("long", "timestamp-micros"), MICROS, "timestamptz", MOMENT),
    (logical("long", "timestamp-millis"), -1, "timestamptz", BEFORE_1970),
    (logical("long", "timestamp-millis"), LARGEST, "timestamptz", MALFORMED),
    (logical("long", "timestamp-millis"), -LARGEST - 1, "timestamptz", MALFORMED),
    (logical("long", "timestamp-nanos"), MICROS * 1000, "timestamptz", MOMENT),
    (logical("long", "timestamp-nanos"), MICROS * 1000 + 1, "timestamptz", MALFORMED),
    (logical("long", "local-timestamp-micros"), MICROS, "timestamp", MOMENT.replace(tzinfo=None)),
    (logical("long", "local-timestamp-millis"), 0, "timestamp", datetime(1970, 1, 1)),  # noqa: DTZ001 - of a column without a zone
    ({"type": "long", "logicalType": "of-our-own"}, 7, "long", 7),
    (logical("int", "timestamp-micros"), 7, "int", 7),
    ({"type": "string", "avro.java.string": "String"}, "x", "string", "x"),
    ("null", None, "long", None),
    (["null", "long"], None, "long", None),
    (["null", "long"], 7, "long", 7),
    (["long", "string"], 7, "long", 7),
    (["long", "string"], "7", "long", MALFORMED),
    (["int", "null", "long"], 2**40, "long", 2**40),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "column", "expected"), EXACT, ids=lambda part: str(part)[:40])
def test_a_value_fits_its_column_exactly_or_is_malformed(kind: Any, value: Any, column: str, expected: Any) -> None:
    assert repr(one(kind, value, column)) == repr(expected)


KINDS = {
    "boolean": True, "int": 1, "long": 1, "float": 1.0, "double": 1.0, "bytes": b"\1", "string": "a",
}  # fmt: skip
MEANING = {
    "date": (logical("int", "date"), 1),
    "time": (logical("long", "time-micros"), 1),
    "moment": (logical("long", "timestamp-micros"), 1),
    "local": (logical("long", "local-timestamp-micros"), 1),
    "decimal": (CENTS, b"\1"),
    "enum": (ENUM, "SPADES"),
    "pair": (PAIR, b"ab"),
    "record": (record(("x", "int"), name="Point"), {"x": 1}),
    "array": ({"type": "array", "items": "int"}, [1]),
    "map": ({"type": "map", "values": "int"}, {"a": 1}),
    **{kind: (kind, value) for kind, value in KINDS.items()},
}
COLUMNS: dict[str, tuple[Type | str, set[str]]] = {
    "boolean": ("boolean", {"boolean"}),
    "int": ("int", {"int", "long"}),
    "long": ("long", {"int", "long"}),
    "float": ("float", {"int", "long", "float", "double"}),
    "double": ("double", {"int", "long", "float", "double"}),
    "decimal": ("decimal(9, 2)", {"int", "long", "decimal"}),
    "date": ("date", {"date"}),
    "time": ("time", {"time"}),
    "timestamp": ("timestamp", {"local"}),
    "timestamptz": ("timestamptz", {"moment"}),
    "string": ("string", {"string", "bytes", "enum"}),
    "uuid": ("uuid", set()),
    "binary": ("binary", {"bytes", "pair"}),
    "fixed": ("fixed[2]", {"pair"}),
    "struct": (columns(x="int"), {"record"}),
    "list": (list_of("int"), {"array"}),
    "map": (map_to("int"), {"map"}),
}


@pytest.mark.parametrize(("meaning", "column"), list(product(MEANING, COLUMNS)))
def test_a_column_takes_values_of_its_own_kind_alone(meaning: str, column: str) -> None:
    kind, value = MEANING[meaning]
    target, taken = COLUMNS[column]
    assert (one(kind, value, target) != MALFORMED) == (meaning in taken)


POINT = record(("x", "int"), ("y", ["null", "int"]), name="Point")
POINT_COLUMN = columns(x="int", y="int")


@pytest.mark.parametrize(
    ("kind", "value", "column", "expected"),
    [
        (POINT, {"x": 1, "y": None}, POINT_COLUMN, {"x": 1, "y": None}),
        (POINT, {"x": 1, "y": 2}, columns(y="int", z="int"), {"y": 2, "z": None}),
        (POINT, {"x": 1, "y": 2}, columns(x="string"), MALFORMED),
        (["null", POINT], None, POINT_COLUMN, None),
        ({"type": "array", "items": POINT}, [{"x": 1, "y": 2}, {"x": 3, "y": None}], list_of(POINT_COLUMN),
         [{"x": 1, "y": 2}, {"x": 3, "y": None}]),
        ({"type": "array", "items": ["null", "long"]}, [None, 2**40], list_of("long"), [None, 2**40]),
        ({"type": "array", "items": "long"}, [1, 2**40], list_of("int"), MALFORMED),
        ({"type": "array", "items": "long"}, [], list_of("int"), []),
        ({"type": "array", "items": {"type": "array", "items": "int"}}, [[1], [], [2, 3]], list_of(list_of("int")),
         [[1], [], [2, 3]]),
        ({"type": "map", "values": ["null", "string"]}, {"a": "x", "b": None}, map_to("string"),
         [("a", "x"), ("b", None)]),
        ({"type": "map", "values": "int"}, {}, map_to("int"), []),
        ({"type": "map", "values": {"type": "array", "items": "int"}}, {"a": [1, 2]}, map_to(list_of("int")),
         [("a", [1, 2])]),
        (ARRAY_OR_MAP, {"a": 1}, map_to("int"), [("a", 1)]),
        (ARRAY_OR_MAP, [1], map_to("int"), MALFORMED),
    ],
)  # fmt: skip
def test_what_is_nested_is_read_by_names_and_checked_at_every_level(
    kind: Any, value: Any, column: Type, expected: Any
) -> None:
    assert one(kind, value, column) == expected


NODE = record(("value", "int"), ("next", ["null", "Node"]), name="Node")


def chain(length: int) -> dict[str, Any] | None:
    node: dict[str, Any] | None = None
    for value in range(length):
        node = {"value": value, "next": node}
    return node


@pytest.mark.parametrize(("length", "expected"), [(1, 5), (90, 5), (150, MALFORMED)])
def test_what_no_column_asks_for_is_passed_over_at_any_place(length: int, expected: Any) -> None:
    skipped: list[tuple[str, Any]] = [
        ("chain", ["null", NODE]),
        ("lists", {"type": "array", "items": {"type": "map", "values": ["null", PAIR, ENUM]}}),
        ("text", "string"),
    ]
    schema = record(*skipped, ("id", "long"))
    value = {"chain": chain(length), "lists": [{"a": b"ab", "b": None}, {}, {"c": "HEARTS"}], "text": "x", "id": 5}
    [row] = decoded({7: schema}, columns(id="long"), [message(encoded(schema, value))])
    assert row == ({"id": expected} if expected == 5 else MALFORMED)


def test_blocks_of_an_array_may_say_their_size_and_be_many() -> None:
    schema = record(("c", {"type": "array", "items": "int"}), ("id", "int"))
    sized = bytes([3, 4, 2, 4, 2, 6, 0, 8])  # two items in two bytes; one item; the end; then 4
    assert decoded({7: schema}, columns(c=list_of("int"), id="int"), [message(sized)]) == [{"c": [1, 2, 3], "id": 4}]


BROKEN = {
    "a number that does not end": ("long", b"\xff" * 10 + b"\1"),
    "a number beyond 64 bits": ("long", b"\xff" * 9 + b"\2"),
    "an int beyond 32 bits": ("int", encoded("long", 2**31)),
    "no number": ("long", b""),
    "a text longer than what is left": ("string", b"\x04a"),
    "a text of negative length": ("string", b"\1"),
    "a boolean that is 2": ("boolean", b"\2"),
    "half a double": ("double", bytes(4)),
    "a branch that there is not": (["null", "int"], b"\4"),
    "a branch below zero": (["null", "int"], b"\1"),
    "a symbol that there is not": (ENUM, b"\4"),
    "an array of more items than bytes": ({"type": "array", "items": "null"}, encoded("long", 2**40) + b"\0"),
    "an array without an end": ({"type": "array", "items": "int"}, b"\2\2"),
    "a block of the least size": ({"type": "array", "items": "int"}, encoded("long", -(2**63)) + b"\2\0"),
    "a key twice": ({"type": "map", "values": "int"}, bytes([4, 2, 97, 2, 2, 97, 4, 0])),
    "a key that is no text": ({"type": "map", "values": "int"}, bytes([2, 2, 255, 2, 0])),
    "bytes behind the value": ("int", b"\2\0"),
}
COLUMN_OF = {"string": "string", "boolean": "boolean", "double": "double", "int": "int", "long": "long"}


@pytest.mark.parametrize("name", BROKEN)
def test_bytes_that_are_no_value_are_malformed_and_leave_their_neighbours_alone(name: str) -> None:
    kind, body = BROKEN[name]
    column = map_to("int") if "key" in name else list_of("int") if "rray" in name or "block" in name else "int"
    column = COLUMN_OF[kind] if isinstance(kind, str) else "string" if kind is ENUM else column
    schemas = {7: record(("c", kind)), 8: record(("c", ["null", "long"]))}
    table = columns(c=column)
    neighbour = message(encoded(["null", "long"], None), 8)
    bad = message(body)
    assert decoded(schemas, table, [neighbour, bad, neighbour]) == [{"c": None}, MALFORMED, {"c": None}]
    assert decoded(schemas, columns(other="int"), [bad])[0] == ({"other": None} if "key" in name else MALFORMED)


NO_MESSAGES = [None, b"", b"\0", b"\0\0\0\0", b"\1\0\0\0\x07\2", b"\0\0\0\0\x09\2", b"  ", b"\0\xff\xff\xff\xff\2"]


def test_what_is_no_message_or_of_a_schema_that_nobody_knows_is_malformed() -> None:
    good = message(b"\2")
    messages = [part for bad in NO_MESSAGES for part in (good, bad)]
    assert decoded({7: record(("c", "int"))}, columns(c="int"), messages) == [{"c": 1}, MALFORMED] * len(NO_MESSAGES)


def test_each_message_is_read_with_the_schema_that_it_names() -> None:
    schemas = {
        1: record(("a", "int"), ("b", "string")),
        2: record(("b", ["null", "string"]), ("c", "double"), ("a", "long")),
        3: "int",
        4: ["null", record(("a", "int"))],
    }
    messages = [
        message(encoded(schemas[2], {"a": 2, "b": "two", "c": 0.5}), 2),
        message(encoded(schemas[1], {"a": 1, "b": "one"}), 1),
        message(encoded("int", 3), 3),
        message(encoded(schemas[4], {"a": 4}), 4),
        message(encoded(schemas[4], None), 4),
        message(encoded(schemas[2], {"a": 3, "b": None, "c": 0.5}), 2),
    ]
    assert decoded(schemas, columns(a="long", b="string"), messages) == [
        {"a": 2, "b": "two"},
        {"a": 1, "b": "one"},
        MALFORMED,
        {"a": 4, "b": None},
        MALFORMED,
        {"a": 3, "b": None},
    ]


def test_floats_keep_every_bit() -> None:
    patterns = [0, 1, 0x7F800000, 0xFF800000, 0x80000000, 0x3DCCCCCD]
    schema = record(("c", "float"))
    rows = decoded({7: schema}, columns(c="float"), [message(struct.pack("<I", bits)) for bits in patterns])
    assert [struct.unpack("<I", struct.pack("<f", row["c"]))[0] for row in rows] == patterns


def test_no_messages_are_no_rows() -> None:
    assert decoded({}, columns(c="int"), []) == []


def test_types_that_are_nested_too_deeply_are_malformed_and_no_error_of_python() -> None:
    node = record(
        ("next", ["null", {"type": "array", "items": ["null", {"type": "map", "values": ["null", "Event"]}]}])
    )
    deep: Any = "int"
    for _ in range(120):
        deep = {"type": "array", "items": deep}
    value: Any = {"next": None}
    for _ in range(150):
        value = {"next": [{"k": value}]}
    wanted = columns(other="int")
    assert decoded({7: node}, wanted, [message(encoded(node, value))]) == [MALFORMED]
    shallow = {"next": [{"k": {"next": None}}]}
    assert decoded({7: node}, wanted, [message(encoded(node, shallow))]) == [{"other": None}]
    one = b"\2" * 120 + b"\0" * 120
    assert decoded({7: record(("deep", deep))}, wanted, [message(one)])[0] in (MALFORMED, {"other": None})
