"""What writers' schemas bring: columns that hold their values exactly, and wider and optional columns."""

import json
from datetime import time
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink.decode.avro.kinds import news_of, unknown_fields
from lakesink.decode.avro.messages import MessageReader
from lakesink.decode.avro.news import AvroNews
from lakesink.decode.avro.schema import SchemaInvalid, WriterSchema, parse_writer_schema
from lakesink.decode.misfits import ITEM, UnknownKeys
from lakesink.decode.news import MOST_KEYS, News, all_news, news_from
from lakesink.decode.value_kinds import DEEPEST, MOST_MEMBERS, NONE, arrow_of, without_type
from lakesink.rows.plan import NewsPlan
from lakesink.rows.schema import Field, Primitive, Struct, Type, parse_schema
from lakesink_catalog.tables.arrow_schema import iceberg_schema
from tests.decode.avro.messages import (
    columns,
    decoded,
    encoded,
    list_of,
    logical,
    map_to,
    message,
    optional,
    record,
)
from tests.decode.avro.test_random import CALENDAR, SCALARS, Sorts, plain

ID = columns(id="long")
WIDENS = NewsPlan(widens=True)


def parsed(schema: Any) -> WriterSchema:
    return parse_writer_schema([json.dumps(schema)])


def kind_of(kind: Any) -> Any:
    return news_of(parsed(record(("new", kind))), ID, WIDENS).added.get(("new",))


@pytest.mark.parametrize(
    ("avro", "arrow"),
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("bytes", pa.binary()),
        ({"type": "fixed", "name": "F", "size": 4}, pa.binary()),
        ({"type": "fixed", "name": "F", "size": 2**31}, pa.binary()),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, pa.uuid()),
        ({"type": "enum", "name": "E", "symbols": ["a"]}, pa.string()),
        (logical("bytes", "decimal", precision=9, scale=2), pa.decimal128(9, 2)),
        (logical("bytes", "decimal", precision=38, scale=38), pa.decimal128(38, 38)),
        (logical("bytes", "decimal", precision=39, scale=2), None),
        (logical("int", "date"), pa.date32()),
        (logical("long", "time-micros"), None),
        (logical("long", "timestamp-millis"), pa.timestamp("us", "UTC")),
        (logical("long", "local-timestamp-nanos"), pa.timestamp("us")),
        ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.int32())),
        ({"type": "map", "values": "double"}, pa.map_(pa.string(), pa.float64())),
        (record(("b", "int"), ("a", "string"), name="R"), pa.struct([("a", pa.string()), ("b", pa.int32())])),
        (["null", "int", "long"], pa.int64()),
        (["float", "double"], pa.float64()),
        (["null", "string", {"type": "enum", "name": "E", "symbols": ["a"]}], pa.string()),
        (["int", "string"], None),
        (["long", "double"], None),
        (["bytes", "string"], None),
        (["int", record(("a", "int"), name="R")], None),
    ],
)
def test_the_type_of_a_new_column_is_the_type_of_the_field(avro: Any, arrow: pa.DataType | None) -> None:
    assert arrow_of(kind_of(avro)) == arrow


def test_a_field_that_is_always_null_brings_nothing() -> None:
    assert not news_of(parsed(record(("new", "null"), ("list", {"type": "array", "items": "null"}))), ID, WIDENS)


def test_it_is_said_why_a_field_has_no_type() -> None:
    assert [why for _, why in without_type((), kind_of(logical("int", "time-millis")))] == [
        "Spark reads no table with a TIME column"
    ]
    assert [why for _, why in without_type((), kind_of(["int", "string"]))] == ["no type holds all of its values"]


@given(st.integers(0, 2**32))
def test_new_columns_hold_every_value_as_it_was_written(seed: int) -> None:
    chance = Random(seed)
    rows = Sorts(chance, tuple(sort for sort in SCALARS + CALENDAR if sort.column != "time")).rows()
    told = news_of(parsed(rows.kind), ID, WIDENS).to_json()
    kinds = news_from(told).added if told else {}
    arrow = pa.schema([(name, arrow_of(kind)) for (name,), kind in kinds.items() if arrow_of(kind) is not None])
    if not len(arrow):
        return
    values = [rows.value(chance) for _ in range(5)]
    table = parse_schema(iceberg_schema(arrow).model_dump_json())
    found = decoded({7: rows.kind}, table, [message(encoded(rows.kind, value)) for value in values])
    assert plain(found) == plain([shaped(value, pa.struct(list(arrow))) for value in values])


def shaped(value: Any, kind: pa.DataType) -> Any:
    """A value that was written as Arrow returns it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: shaped(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(key, shaped(item, kind.item_type)) for key, item in value.items()]
    return [shaped(item, kind.value_type) for item in value] if pa.types.is_list(kind) else value


def test_the_kinds_of_several_schemas_are_merged_in_any_order() -> None:
    schemas = [
        record(("a", "int"), ("b", logical("bytes", "decimal", precision=5, scale=2)), ("c", "float"), ("d", "int")),
        record(("a", "long"), ("b", logical("bytes", "decimal", precision=9, scale=2)), ("c", ["null", "double"])),
        record(("a", ["null", "int"]), ("d", "string"), ("c", "null")),
    ]
    told = [news_of(parsed(schema), ID, WIDENS).to_json() for schema in schemas]
    expected = {("a",): "long", ("b",): "decimal(9, 2)", ("c",): "double", ("d",): NONE}
    assert all_news(told).added == all_news(reversed(told)).added == expected


@pytest.mark.parametrize(
    ("column", "avro", "wide"),
    [
        ("int", "long", "long"),
        ("int", "int", None),
        ("long", "int", None),
        ("long", "double", None),
        ("int", ["null", "int", "long"], "long"),
        ("int", logical("int", "date"), None),
        ("float", "double", "double"),
        ("float", "long", None),
        ("decimal(9, 2)", logical("bytes", "decimal", precision=12, scale=2), "decimal(12, 2)"),
        ("decimal(9, 2)", logical("bytes", "decimal", precision=9, scale=0), "decimal(11, 2)"),
        ("decimal(9, 2)", logical("bytes", "decimal", precision=9, scale=2), None),
        ("decimal(9, 2)", logical("bytes", "decimal", precision=12, scale=3), None),
        ("decimal(38, 9)", logical("bytes", "decimal", precision=38, scale=2), None),
        ("string", "long", None),
    ],
)
def test_a_column_becomes_as_wide_as_the_field(column: str, avro: Any, wide: str | None) -> None:
    expected = {} if wide is None else {("c",): wide}
    schema = parsed(record(("c", avro)))
    assert news_of(schema, columns(c=column), WIDENS).widened == expected
    assert not news_of(schema, columns(c=column), NewsPlan(widens=False)).widened
    assert not news_of(schema, columns(c=column), NewsPlan(widens=True, kept_types=frozenset({1}))).widened


NESTED = record(
    ("one", record(("a", "int"), ("x", "int"), name="One")),
    ("many", {"type": "array", "items": ["null", record(("a", "int"), ("x", "int"), name="Many")]}),
    ("named", {"type": "map", "values": record(("a", "int"), ("x", "long"), name="Named")}),
    ("element", "int"),
)
TABLE = columns(one=columns(a="int"), many=list_of(columns(a="int")), named=map_to(columns(a="int", x="int")))


def test_nested_fields_have_their_places_in_the_table() -> None:
    found = news_of(parsed(NESTED), TABLE, WIDENS)
    assert found.added == {("one", "x"): "int", ("many", "element", "x"): "int", ("element",): "int"}
    assert found.widened == {("named", "value", "x"): "long"}
    assert unknown_fields(parsed(NESTED), TABLE) == [("one", "x"), ("many", ITEM, "x"), ("element",)]


def test_a_recursive_type_and_one_that_repeats_itself_without_end_have_no_type() -> None:
    recursive = record(("next", ["null", "Event"]), ("n", "int"))
    [next_one] = news_of(parsed(recursive), columns(n="int"), WIDENS).added.values()
    assert list(without_type(("next",), next_one)) == [(("next",), "its type contains itself")]
    below = news_of(parsed(recursive), columns(n="int", next=columns(n="int")), WIDENS).added
    assert list(without_type((), below["next", "next"])) == [((), "its type contains itself")]
    deep: Any = "int"
    for level in range(DEEPEST):
        deep = record(("a", deep), ("b", "int"), name=f"R{level}")
    assert not list(without_type((), kind_of(deep)))
    assert [why for _, why in without_type((), kind_of({"type": "array", "items": deep}))] == [
        "it has more than 5 levels"
    ]
    bomb: Any = record(*((f"f{at}", "int") for at in range(90)), name="R0")
    levels = [
        bomb,
        *(record(*((f"f{at}", f"R{level}") for at in range(90)), name=f"R{level + 1}") for level in range(4)),
    ]
    schema = parse_writer_schema([json.dumps(level) for level in levels])
    [first, *_] = list(news_of(schema, ID, WIDENS).added.values())
    assert first  # within seconds: 90 to the power of 5 types would take hours
    wide = record(*((f"f{at}", "int") for at in range(MOST_KEYS + 1)))
    assert news_of(parsed(wide), ID, WIDENS).has_too_many
    assert kind_of(record(*((f"f{at}", "int") for at in range(MOST_MEMBERS + 1)), name="R")) == NONE


@pytest.mark.parametrize("name", [1, None, "\ud800"])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    with pytest.raises(SchemaInvalid, match="the name of a field is not a text"):
        parsed(record((name, "int")))


def test_two_fields_of_one_name_are_refused() -> None:
    with pytest.raises(SchemaInvalid, match="two fields of one name"):
        parsed(record(("a", "int"), ("a", "long")))


def required(number: int, name: str, kind: Type | str) -> Field:
    return Field(number, name, required=True, type=Primitive(kind) if isinstance(kind, str) else kind)


INNER = Struct((required(4, "a", "int"), optional(5, "b", "int")))
STRICT = Struct((required(1, "id", "int"), optional(2, "one", INNER), optional(3, "many", list_of(INNER))))


def inner(name: str) -> Any:
    return record(("a", ["null", "int"]), ("b", ["null", "int"]), name=name)


def test_only_a_value_that_is_missing_makes_a_required_column_optional() -> None:
    schema = record(
        ("id", ["null", "int"]), ("one", ["null", inner("One")]), ("many", {"type": "array", "items": inner("Many")})
    )
    full, empty = {"a": 1, "b": None}, {"a": None, "b": 1}
    values = [
        {"id": 1, "one": full, "many": [full]},
        {"id": None, "one": full, "many": []},
        {"id": 2, "one": empty, "many": [full, empty]},
        {"id": 3, "one": None, "many": []},
    ]
    assert of_rows(STRICT, schema, values) == {1: {("id",)}, 2: {("one", "a"), ("many", "element", "a")}}
    kept = NewsPlan(widens=True, kept_required=frozenset({1}))
    assert of_rows(STRICT, schema, values, kept).keys() == {2}
    assert not of_rows(STRICT, schema, values, NewsPlan(widens=False))
    assert of_rows(STRICT, record(("other", "null")), [{"other": None}] * 2) == {0: {("id",)}, 1: {("id",)}}


def test_a_value_that_a_rescue_column_forgives_is_still_seen_to_be_missing() -> None:
    schema = record(("id", "int"), ("one", ["null", inner("One")]))
    values = [{"id": 1, "one": {"a": None, "b": 2}}, {"id": 1, "one": {"a": 1, "b": 2}}]
    assert of_rows(STRICT, schema, values, forgives=True) == {0: {("one", "a")}}


def of_rows(
    table: Struct, schema: Any, values: list[Any], plan: NewsPlan = WIDENS, *, forgives: bool = False
) -> dict[int, set[Any]]:
    reader = MessageReader({7: parsed(schema)}.get, forgives=forgives)
    messages = pa.array([message(encoded(schema, value)) for value in values])
    found = AvroNews(plan, table, reader).found(messages, reader.documents(messages, table))
    return {row: news.optional for rows, news in found for row in rows if news.optional}


def test_messages_that_are_malformed_for_good_have_no_news() -> None:
    schema = record(("id", "long"), ("name", ["int", "string"]), ("new", "int"))
    table, reader = columns(id="int", name="int"), MessageReader({7: parsed(schema)}.get)
    good = [{"id": 1, "name": 1, "new": 1}, {"id": 2**40, "name": 2, "new": 2}, {"id": 3, "name": "x", "new": 3}]
    messages = [message(encoded(schema, value)) for value in good]
    whole = pa.array([*messages, messages[0][:-1], None, b"x", message(b"", 9)], pa.binary())
    [(rows, news)] = AvroNews(WIDENS, table, reader).found(whole, reader.documents(whole, table))
    assert (rows, news.added, news.widened) == ([0, 1], {("new",): "int"}, {("id",): "long"})
    [(rows, _)] = AvroNews(NewsPlan(widens=False), table, reader).found(whole, reader.documents(whole, table))
    assert rows == [0]


def news_by_row(table: Struct, schema: Any, values: list[Any], plan: NewsPlan = WIDENS) -> dict[int, News]:
    reader = MessageReader({7: parsed(schema)}.get)
    messages = pa.array([message(encoded(schema, value)) for value in values])
    found = AvroNews(plan, table, reader).found(messages, reader.documents(messages, table))
    by_row = {}
    for rows, news in found:
        assert rows, "news without a message"
        by_row.update(dict.fromkeys(rows, news))
    return by_row


def test_a_field_that_can_get_no_column_counts_only_where_it_has_a_value() -> None:
    at = ["null", logical("int", "time-millis")]
    one = record(("a", "int"), ("at", at), ("ats", {"type": "array", "items": at}), name="One")
    schema = record(("id", "long"), ("at", at), ("one", ["null", one]))
    values = [
        {"id": 1, "at": None, "one": None},
        {"id": 2, "at": time(1), "one": None},
        {"id": 3, "at": None, "one": {"a": 1, "at": time(1), "ats": []}},
        {"id": 4, "at": None, "one": {"a": 1, "at": None, "ats": [None]}},
        {"id": 5, "at": None, "one": {"a": 1, "at": None, "ats": [None, time(1)]}},
    ]
    found = news_by_row(ID, schema, values)
    refused = [
        [place for at, kind in found[row].added.items() for place, _ in without_type(at, kind)] for row in range(5)
    ]
    assert refused == [[], [("at",)], [("one", "at")], [], [("one", "ats", "element")]]
    assert all(arrow_of(news.added["one",]) == pa.struct([("a", pa.int32())]) for news in found.values())
    last = news_by_row(columns(id="long", one=columns(a="int")), schema, values, NewsPlan(widens=True, is_last=True))
    assert {row: set(news.added) for row, news in last.items()} == {
        1: {("at",)}, 2: {("one", "at")}, 4: {("one", "ats")},
    }  # fmt: skip


def test_a_field_that_got_no_column_because_of_its_name_counts_where_it_has_a_value_too() -> None:
    schema = record(("id", "long"), ("_kafka_offset", ["null", "long"]))
    values = [{"id": 1, "_kafka_offset": None}, {"id": 2, "_kafka_offset": 5}]
    last = news_by_row(ID, schema, values, NewsPlan(widens=True, is_last=True))
    assert {row: news.added for row, news in last.items()} == {1: {("_kafka_offset",): "long"}}


def test_a_message_that_its_own_schema_makes_malformed_changes_nothing() -> None:
    table = Struct((required(1, "id", "long"), optional(2, "f", "float"), optional(3, "d", "decimal(5, 2)")))
    assert not news_by_row(table, record(("f", "long"), ("new", "int")), [{"f": 2**24 + 1, "new": 1}])
    wide = record(("d", logical("bytes", "decimal", precision=9, scale=3)), ("id", "long"), ("new", "int"))
    assert not news_by_row(table, wide, [{"d": Decimal("1.001"), "id": 1, "new": 1}])
    [news] = news_by_row(table, wide, [{"d": Decimal("1.010"), "id": 1, "new": 1}]).values()
    assert news.added == {("new",): "int"}


def test_fields_without_a_column_are_counted_with_all_their_values() -> None:
    unknown = UnknownKeys()
    schema = record(("id", "long"), ("more", ["null", "int"]), ("nothing", "null"))
    reader = MessageReader({7: parsed(schema)}.get, unknown)
    bodies = [encoded(schema, {"id": at, "more": None, "nothing": None}) for at in range(3)]
    messages = pa.array([*map(message, bodies), b"x"], pa.binary())
    reader.documents(messages, ID)
    reader.explain(messages, ID)
    assert (unknown.count, unknown.names) == (3, ("more",))
