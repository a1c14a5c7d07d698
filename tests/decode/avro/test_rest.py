"""What a row does not hold of its Avro message is in the rescue column, exactly; bytes that are no value never are."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink.decode.avro.messages import MessageReader
from lakesink.decode.avro.schema import parse_writer_schema
from lakesink.decode.json_scalars import Parsed, either, without
from lakesink.decode.rescue import LARGEST_REST_BYTES, Rescue
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type, sql_type_of
from lakesink_protocol.measures import RESCUED_ROWS, Tally
from lakesink_protocol.quality import Quality
from testkit.examples import examples
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
from tests.decode.avro.test_random import moment, mutated, plain, text

RESCUED = "_rescued"
NESTED = {Struct: "STRUCT", ListOf: "ARRAY", MapOf: "MAP"}


def rescued(
    schemas: Mapping[int, Any], table: Struct, *batches: Sequence[bytes | None]
) -> tuple[list[Any], Quality, MessageReader]:
    """Each message as a row with its rescued text, or `MALFORMED`."""
    parsed = {number: parse_writer_schema([json.dumps(schema)]) for number, schema in schemas.items()}
    reader = MessageReader(parsed.get, forgives=True)
    rescue, rows = Rescue(table, reader.texts), []
    for messages in batches:
        documents = pa.array(messages, pa.binary())
        found = reader.documents(documents, table)
        misfits = either(found.misfits, found.values.is_null())
        assert misfits is not None
        found, rests = rescue.kept(documents, Parsed(without(found.values, misfits), misfits, found.rest))
        found.values.validate(full=True)
        assert found.misfits is not None
        told = zip(found.values.to_pylist(), rests.to_pylist(), found.misfits.to_pylist(), strict=True)
        rows += [MALFORMED if wrong else row | {RESCUED: rest} for row, rest, wrong in told]
        assert all(row is rest is None for row, rest, wrong in told if wrong)
    return rows, rescue.quality, reader


def kept(schema: Any, value: Any, table: Struct) -> Any:
    """The row of one value, as it is written, whatever it means."""
    [row], _, _ = rescued({7: schema}, table, [message(encoded(without_meaning(schema), value))])
    return row


def required(name: str, kind: Type | str) -> Field:
    return Field(1, name, required=True, type=Primitive(kind) if isinstance(kind, str) else kind)


# Each type as JSON


ENUM = {"type": "enum", "name": "Suit", "symbols": ["SPADES", "HEARTS"]}
PAIR = {"type": "fixed", "name": "Pair", "size": 2}
UUID = logical("fixed", "uuid", name="U", size=16)
CENTS = logical("bytes", "decimal", precision=9, scale=2)
SMALL = logical("fixed", "decimal", name="Small", size=3, precision=7, scale=5)
HUGE_SCALE = logical("bytes", "decimal", precision=10**12, scale=10**12)
LONGEST = 2**63 - 1
TEXTS: list[tuple[Any, Any, str]] = [
    ("int", -(2**31), "-2147483648"),
    ("long", LONGEST, "9223372036854775807"),
    ("long", -LONGEST - 1, "-9223372036854775808"),
    ("double", 0.1, "0.1"),
    ("double", 5e-324, "5e-324"),
    ("double", 1e22, "1e+22"),
    ("double", -0.0, "-0.0"),
    ("double", float("nan"), '"NaN"'),
    ("double", float("inf"), '"Infinity"'),
    ("float", float("-inf"), '"-Infinity"'),
    ("float", 0.5, "0.5"),
    ("float", 0.1, "0.10000000149011612"),
    ("boolean", True, "true"),
    ("boolean", False, "false"),
    ("string", 'a"\\\n\0é\U0001f600/', '"a\\"\\\\\\n\\u0000é\U0001f600/"'),
    ("string", "null", '"null"'),
    ("bytes", b"\0\xff\xfe", '"AP/+"'),
    ("bytes", b"", '""'),
    (PAIR, b"\xff\0", '"/wA="'),
    (UUID, bytes(range(16)), '"00010203-0405-0607-0809-0a0b0c0d0e0f"'),
    (ENUM, "HEARTS", '"HEARTS"'),
    (CENTS, b"\x01", "0.01"),
    (CENTS, b"\xff", "-0.01"),
    (CENTS, (12345).to_bytes(9, "big"), "123.45"),
    (CENTS, (-(10**60)).to_bytes(30, "big", signed=True), f"-1{'0' * 58}.00"),
    (CENTS, b"", '""'),
    (CENTS, bytes(999) + b"\1", "0.01"),
    (CENTS, b"\1" * 1001, f'"{base64.b64encode(bytes([1]) * 1001).decode()}"'),
    (HUGE_SCALE, b"\1", '"AQ=="'),
    (SMALL, b"\x7f\xff\xff", "83.88607"),
    (logical("bytes", "decimal", precision=5), b"\x04\xd2", "1234"),
    (logical("int", "date"), 0, '"1970-01-01"'),
    (logical("int", "date"), -1, '"1969-12-31"'),
    (logical("int", "date"), -719_529, '"-001-12-31"'),
    (logical("int", "date"), 2**31 - 1, '"5881580-07-11"'),
    (logical("int", "time-millis"), 86_399_999, '"23:59:59.999"'),
    (logical("int", "time-millis"), 86_400_000, "86400000"),
    (logical("long", "time-micros"), 1, '"00:00:00.000001"'),
    (logical("long", "time-micros"), -1, "-1"),
    (logical("long", "timestamp-millis"), -1, '"1969-12-31T23:59:59.999Z"'),
    (logical("long", "timestamp-micros"), 1_709_208_000_000_001, '"2024-02-29T12:00:00.000001Z"'),
    (logical("long", "timestamp-nanos"), 1_709_208_000_000_000_001, '"2024-02-29T12:00:00.000000001Z"'),
    (logical("long", "timestamp-nanos"), -LONGEST - 1, '"1677-09-21T00:12:43.145224192Z"'),
    (logical("long", "local-timestamp-micros"), 0, '"1970-01-01T00:00:00.000000"'),
    (logical("long", "local-timestamp-millis"), LONGEST, '"292278994-08-17T07:12:55.807"'),
    (logical("long", "timestamp-micros"), -LONGEST - 1, '"-290308-12-21T19:59:05.224192Z"'),
    (logical("string", "uuid"), "x", '"x"'),
    (logical("fixed", "duration", name="D", size=12), bytes(12), '"AAAAAAAAAAAAAAAA"'),
    ({"type": "array", "items": ["null", "int"]}, [1, None, 2], "[1,null,2]"),
    ({"type": "array", "items": "int"}, [], "[]"),
    ({"type": "map", "values": {"type": "map", "values": "long"}}, {"a:": {}, '"': {"": 1}}, '{"a:":{},"\\"":{"":1}}'),
    (record(("a", ["null", "int"]), ("b.c", "string"), name="R"), {"a": None, "b.c": "x"}, '{"a":null,"b.c":"x"}'),
    (["null", "string", "bytes"], b"x", '"eA=="'),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "expected"), TEXTS)
def test_a_value_of_each_type_is_kept_as_json_with_all_that_it_says(kind: Any, value: Any, expected: str) -> None:
    schema = record(("id", "int"), ("new", kind), ("behind", "int"))
    row = kept(schema, {"id": 1, "new": value, "behind": 2}, columns(id="int", behind="int"))
    assert row == {"id": 1, "behind": 2, RESCUED: f'{{"unknown":{{"new":{expected}}}}}'}
    misfit = kept(
        schema, {"id": 1, "new": value, "behind": 2}, columns(id="int", new=columns(other="int"), behind="int")
    )
    if not isinstance(kind, dict) or kind["type"] != "record":
        unfit = f'{{"unfit":{{"new":{{"expected":"STRUCT","value":{expected}}}}}}}'
        assert misfit == {"id": 1, "new": None, "behind": 2, RESCUED: unfit}


@given(st.floats(), st.integers(-(2**63), LONGEST), st.integers(-(10**60), 10**60), st.integers(0, 60), st.binary())
def test_numbers_and_bytes_are_read_back_as_they_were(
    fraction: float, whole: int, unscaled: int, scale: int, content: bytes
) -> None:
    number = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    exact = logical("bytes", "decimal", precision=61, scale=scale)
    schema = record(("fraction", "double"), ("whole", "long"), ("exact", exact), ("content", "bytes"))
    value = {"fraction": fraction, "whole": whole, "exact": number, "content": content}
    row = kept(schema, value, columns(other="int"))
    found = json.loads(row[RESCUED], parse_float=Decimal)["unknown"]
    assert repr(float(found["fraction"])) == repr(fraction)
    assert found["whole"] == whole
    digits = tuple(map(int, str(abs(unscaled))))
    assert Decimal(found["exact"]).as_tuple() == (int(unscaled < 0), digits, -scale)
    assert base64.b64decode(found["content"]) == content


# Random schemas, tables and values


@dataclass(frozen=True)
class Sort:
    """A type of Avro's, values of it, each as JSON, and columns for it; `parts` by name, of a nested type.

    Attributes:
        shape: ``array``, ``map``, ``record``, ``maybe`` (null or another type), or ``scalar``.
    """

    kind: Any
    value: Callable[[Random], Any]
    text: Callable[[Any], str]
    shape: str = "scalar"
    parts: tuple[tuple[str, "Sort"], ...] = ()
    fitting: tuple[str, ...] = ()


def quoted(value: Any) -> str:
    return json.dumps(str(value), ensure_ascii=False)


SCALARS = (
    Sort("int", lambda chance: chance.choice([0, -1, 2**31 - 1]), str, fitting=("int", "long", "double")),
    Sort("long", lambda chance: chance.choice([7, 2**40, -(2**63)]), str, fitting=("int", "long", "float")),
    Sort("double", lambda chance: chance.choice([0.5, 0.1, 1e300]), repr, fitting=("double", "float")),
    Sort("boolean", lambda chance: chance.random() < 0.5, lambda value: str(value).lower(), fitting=("boolean",)),
    Sort("string", text, quoted, fitting=("string", "uuid")),
    Sort(
        "bytes",
        lambda chance: chance.choice([b"", b"\xff", b"abcd"]),
        lambda value: quoted(base64.b64encode(value).decode()),
        fitting=("binary", "string", "fixed[4]"),
    ),
    Sort(
        CENTS,
        lambda chance: Decimal(chance.choice([0, 1, -125, 10**8])).scaleb(-2),
        lambda value: format(value, "f"),
        fitting=("decimal(9, 2)", "decimal(4, 1)"),
    ),
    Sort(
        logical("int", "date"),
        lambda chance: date.fromordinal(chance.randint(1, date.max.toordinal())),
        quoted,
        fitting=("date",),
    ),
    Sort(
        logical("long", "timestamp-micros"),
        moment,
        lambda value: quoted(f"{value:%Y-%m-%dT%H:%M:%S.%f}Z"),
        fitting=("timestamptz",),
    ),
)


def array(item: Sort) -> Sort:
    def value(chance: Random) -> Any:
        return [item.value(chance) for _ in range(chance.choice([0, 1, 3]))]

    def told(values: Any) -> str:
        return f"[{','.join(map(item.text, values))}]"

    return Sort({"type": "array", "items": item.kind}, value, told, "array", (("element", item),))


def mapping(item: Sort) -> Sort:
    def value(chance: Random) -> Any:
        return {text(chance): item.value(chance) for _ in range(chance.randint(0, 3))}

    def told(values: Any) -> str:
        return f"{{{','.join(f'{quoted(name)}:{item.text(one)}' for name, one in values.items())}}}"

    return Sort({"type": "map", "values": item.kind}, value, told, "map", (("value", item),))


def maybe(item: Sort, *, null_first: bool) -> Sort:
    kind = ["null", item.kind] if null_first else [item.kind, "null"]

    def value(chance: Random) -> Any:
        return None if chance.random() < 0.4 else item.value(chance)

    def told(found: Any) -> str:
        return "null" if found is None else item.text(found)

    return Sort(kind, value, told, "maybe", (("", item),))


def rows(parts: Sequence[Sort], name: str) -> Sort:
    named = tuple((f"f{number}", part) for number, part in enumerate(parts))

    def value(chance: Random) -> Any:
        return {field: part.value(chance) for field, part in named}

    def told(found: Any) -> str:
        return f"{{{','.join(f'{quoted(field)}:{part.text(found[field])}' for field, part in named)}}}"

    return Sort(record(*((field, part.kind) for field, part in named), name=name), value, told, "record", named)


@dataclass
class Drawn:
    """Random sorts, and columns that fit them, or not."""

    chance: Random
    scalars: Sequence[Sort] = SCALARS
    records: int = 0

    def sort(self, depth: int) -> Sort:
        made = self.chance.choice(self.scalars)
        if depth < 3 and self.chance.random() < 0.5:
            shape = self.chance.choice([array, mapping, None])
            made = self.record(depth + 1) if shape is None else shape(self.sort(depth + 1))
        return maybe(made, null_first=self.chance.random() < 0.5) if self.chance.random() < 0.3 else made

    def record(self, depth: int = 0) -> Sort:
        self.records += 1
        name = f"R{self.records}"
        return rows([self.sort(depth) for _ in range(self.chance.randint(1, 4))], name)

    def column(self, sort: Sort) -> Type:
        if self.chance.random() < 0.1:
            others: list[Type] = [Primitive("int"), list_of("int"), map_to("string"), columns(f0="int")]
            return self.chance.choice(others)
        match sort.shape:
            case "scalar":
                return Primitive(self.chance.choice(sort.fitting))
            case "array":
                return ListOf(self.field("element", sort.parts[0][1]))
            case "map":
                return MapOf(required("key", "string"), self.field("value", sort.parts[0][1]))
            case "maybe":
                return self.column(sort.parts[0][1])
        return self.struct(sort)

    def struct(self, sort: Sort) -> Struct:
        fields = [self.field(name, part) for name, part in sort.parts if self.chance.random() < 0.7]
        if not fields or self.chance.random() < 0.3:
            fields.append(Field(1, "missing", required=self.chance.random() < 0.2, type=Primitive("int")))
        self.chance.shuffle(fields)
        return Struct(tuple(fields))

    def field(self, name: str, sort: Sort) -> Field:
        return Field(1, name, required=self.chance.random() < 0.2, type=self.column(sort))


# The reference, value by value


@cache
def alone(kind: str, value_text: str, column: str) -> Any:
    schema = record(("c", json.loads(kind)))
    value = SAMPLES[kind, value_text]
    [row] = decoded({7: schema}, columns(c=column), [message(encoded(schema, {"c": value}))])
    return row if row == MALFORMED else row["c"]


SAMPLES: dict[tuple[str, str], Any] = {}


def held(sort: Sort, value: Any, wanted: Type) -> Any:
    """The value in the table, or `MALFORMED`; a scalar is read alone, by the reader that forgives nothing."""
    if sort.shape == "maybe":
        return None if value is None else held(sort.parts[0][1], value, wanted)
    match sort.shape, wanted:
        case "scalar", Primitive(name):
            SAMPLES[json.dumps(sort.kind), sort.text(value)] = value
            return alone(json.dumps(sort.kind), sort.text(value), name)
        case "array", ListOf(element):
            found: Any = [in_field(sort.parts[0][1], one, element) for one in value]
            return MALFORMED if MALFORMED in found else found
        case "map", MapOf(_, item):
            pairs = [(name, in_field(sort.parts[0][1], one, item)) for name, one in value.items()]
            return MALFORMED if any(one == MALFORMED for _, one in pairs) else pairs
        case "record", Struct(fields):
            parts = dict(sort.parts)
            row = {
                field.name: in_field(parts[field.name], value[field.name], field)
                if field.name in parts
                else (MALFORMED if field.required else None)
                for field in fields
            }
            return MALFORMED if MALFORMED in row.values() else row
    return MALFORMED


def in_field(sort: Sort, value: Any, field: Field) -> Any:
    found = held(sort, value, field.type)
    if field.required:
        return MALFORMED if found is None else found
    return None if found == MALFORMED else found


def lost(  # noqa: C901 - each shape is simple
    sort: Sort, value: Any, row: Any, wanted: Type, path: str
) -> Iterator[tuple[str, str, str, str]]:
    """What a row does not hold of a value: the member, its path, its text, and its expected type."""
    if sort.shape == "maybe":
        sort = sort.parts[0][1]
    if value is None:
        return
    if row is None:
        expected = sql_type_of(wanted) if isinstance(wanted, Primitive) else NESTED[type(wanted)]
        yield "unfit", path, sort.text(value), expected
    elif isinstance(wanted, Struct):
        fields = {field.name: field.type for field in wanted.fields}
        for name, part in sort.parts:
            below = f"{path}.{name}" if path else name
            if name in fields:
                yield from lost(part, value[name], row[name], fields[name], below)
            elif value[name] is not None:
                yield "unknown", below, part.text(value[name]), ""
    elif isinstance(wanted, ListOf):
        for number, (one, item) in enumerate(zip(value, row, strict=True)):
            yield from lost(sort.parts[0][1], one, item, wanted.element.type, f"{path}[{number}]")
    elif isinstance(wanted, MapOf):
        for (name, one), (_, item) in zip(value.items(), row, strict=True):
            yield from lost(sort.parts[0][1], one, item, wanted.value.type, f"{path}{{{quoted(name)}}}")


def rest_in(found: Iterator[tuple[str, str, str, str]]) -> Any:
    rest: dict[str, Any] = {}
    for member, path, value, expected in found:
        place = rest.setdefault(member, {})
        assert path not in place
        place[path] = spelled(value) if member == "unknown" else {"expected": expected, "value": spelled(value)}
    return rest


def spelled(told: str) -> Any:
    """JSON with numbers as written, apart from texts."""
    return json.loads(told, parse_int=lambda digits: ("n", digits), parse_float=lambda digits: ("n", digits))


@given(st.integers(0, 2**32))
@examples(40)
def test_row_and_rescued_text_have_every_value_of_a_message_or_it_is_malformed(seed: int) -> None:
    drawn = Drawn(Random(seed))
    schemas = {1: drawn.record(), 2: drawn.record()}
    table = drawn.struct(schemas[1])
    chosen = [drawn.chance.choice([1, 1, 2]) for _ in range(drawn.chance.randint(0, 8))]
    values = [(schemas[number], number, schemas[number].value(drawn.chance)) for number in chosen]
    messages = [message(encoded(sort.kind, value), number) for sort, number, value in values]
    half = len(messages) // 2
    kinds = {number: sort.kind for number, sort in schemas.items()}
    found, quality, _ = rescued(kinds, table, messages[:half], messages[half:])
    for row, (sort, _, value) in zip(found, values, strict=True):
        expected = held(sort, value, table)
        rest = None if row == MALFORMED else row.pop(RESCUED)
        assert plain(row) == plain(expected)
        if row != MALFORMED:
            assert spelled(rest or "{}") == rest_in(lost(sort, value, expected, table, ""))
    whole, same_quality, _ = rescued(kinds, table, messages)
    assert same_quality == quality
    assert quality.counts[RESCUED_ROWS] == sum(row != MALFORMED and row[RESCUED] is not None for row in whole)


@given(st.integers(0, 2**32))
@examples(40)
def test_bytes_that_are_no_value_are_malformed_with_a_rescue_column_too(seed: int) -> None:
    drawn = Drawn(Random(seed), SCALARS[:-2])  # Python has no dates for most numbers
    sort = drawn.record()
    table = drawn.struct(sort)
    bodies = [mutated(drawn.chance, encoded(sort.kind, sort.value(drawn.chance))) for _ in range(5)]
    messages = [message(body) for body in bodies]
    found, _, _ = rescued({7: sort.kind}, table, messages)
    one_by_one = [row for one in messages for row in rescued({7: sort.kind}, table, [one])[0]]
    assert plain(found) == plain(one_by_one)
    strict = decoded({7: sort.kind}, table, messages)
    readable = decoded({7: sort.kind}, columns(missing="int"), messages)
    for row, as_before, is_value in zip(found, strict, readable, strict=True):
        if is_value == MALFORMED:
            assert row == MALFORMED
        if MALFORMED not in (row, as_before) and "unfit" not in (row[RESCUED] or ""):
            assert plain({name: row[name] for name in as_before}) == plain(as_before)


# What lands, and what does not


NODE = record(("value", "int"), ("next", ["null", "Node"]), name="Node")


def chain(length: int) -> dict[str, Any] | None:
    node: dict[str, Any] | None = None
    for value in range(length):
        node = {"value": value, "next": node}
    return node


def test_rows_without_a_rest_are_not_looked_at_again() -> None:
    schema = record(
        ("id", "int"), ("new", ["null", "string"]), ("gone", "null"), ("in", record(("x", "int"), name="In"))
    )
    value = {"id": 1, "new": None, "gone": None, "in": {"x": 1}}
    messages = [message(encoded(schema, value)), message(encoded(schema, value | {"new": "x"}))]
    table = Struct((*columns(id="int").fields, required("in", columns(x="long", missing="int"))))
    _, _, reader = rescued({7: schema}, table, messages)
    assert reader.documents(pa.array(messages[:1]), table).rest is None
    assert reader.documents(pa.array(messages), table).rest.to_pylist() == [False, True]  # type: ignore[union-attr]


@pytest.mark.parametrize(("length", "lands"), [(1, True), (90, True), (150, False)])
def test_a_recursive_value_is_kept_to_the_depth_to_which_it_is_read(length: int, lands: bool) -> None:  # noqa: FBT001 - a parameter of the test
    schema = record(("chain", ["null", NODE]), ("id", "int"))
    row = kept(schema, {"chain": chain(length), "id": 5}, columns(id="int", chain="string"))
    if not lands:
        assert row == MALFORMED
        return
    assert (row["id"], row["chain"]) == (5, None)
    unfit = {"chain": {"expected": "STRING", "value": chain(length)}}
    assert json.loads(row[RESCUED]) == {"unfit": unfit}


@pytest.mark.parametrize("cut", [1, 2])
def test_bytes_behind_a_value_that_does_not_fit_are_still_checked(cut: int) -> None:
    schema = record(("name", "long"), ("list", {"type": "array", "items": "int"}), ("id", "long"))
    body = encoded(schema, {"name": 7, "list": [1, 2], "id": 2**40})
    table = columns(name="string", id="long")
    bad = [message(body[:-cut]), message(body + b"\0"), message(b"\x0e\x05" + body[2:]), message(b"\xff" * 11)]
    found, _, _ = rescued({7: schema}, table, [message(body), *bad, message(body)])
    assert found[1:-1] == [MALFORMED] * 4
    unfit = {"name": {"expected": "STRING", "value": 7}}
    assert [json.loads(row[RESCUED]) for row in (found[0], found[-1])] == [
        {"unknown": {"list": [1, 2]}, "unfit": unfit}
    ] * 2
    assert found[0]["id"] == 2**40


STERN = Struct((required("r", "int"), *columns(a="string").fields))


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("string", "x", "x"),
        (["null", "int"], None, None),
        ("null", None, None),
        ("int", 1, 1),
    ],
)
def test_a_required_field_makes_its_struct_unfit_and_a_required_column_the_message(
    kind: Any, value: Any, expected: Any
) -> None:
    inner = record(("r", kind), ("a", "string"), name="Inner")
    schema = record(("s", inner))
    table = Struct((Field(1, "s", required=False, type=STERN),))
    row = kept(schema, {"s": {"r": value, "a": "x"}}, table)
    if expected == 1:
        assert row == {"s": {"r": 1, "a": "x"}, RESCUED: None}
    else:
        unfit = {"s": {"expected": "STRUCT", "value": {"r": expected, "a": "x"}}}
        assert row["s"] is None
        assert json.loads(row[RESCUED]) == {"unfit": unfit}
    stern = kept(schema, {"s": {"r": value, "a": "x"}}, Struct((required("s", STERN),)))
    assert (stern == MALFORMED) == (expected != 1)


def test_a_required_field_that_a_record_lacks_makes_its_struct_unfit() -> None:
    schema = record(("s", record(("a", "string"), name="Inner")))
    row = kept(schema, {"s": {"a": "x"}}, Struct((Field(1, "s", required=False, type=STERN),)))
    assert row == {"s": None, RESCUED: '{"unfit":{"s":{"expected":"STRUCT","value":{"a":"x"}}}}'}
    assert kept(schema, {"s": {"a": "x"}}, STERN) == MALFORMED


def test_a_union_is_the_value_of_its_branch_and_each_record_has_its_own_fields() -> None:
    one, other = record(("a", "int"), ("x", "int"), name="One"), record(("a", "string"), ("y", "int"), name="Other")
    schema = record(("u", ["null", one, other, "bytes"]))
    table = columns(u=columns(a="int"))
    values: list[Any] = [None, ("One", {"a": 1, "x": 2}), ("Other", {"a": "z", "y": 3}), b"x"]
    found, quality, _ = rescued({7: schema}, table, [message(encoded(schema, {"u": value})) for value in values])
    assert found == [
        {"u": None, RESCUED: None},
        {"u": {"a": 1}, RESCUED: '{"unknown":{"u.x":2}}'},
        {"u": {"a": None}, RESCUED: '{"unknown":{"u.y":3},"unfit":{"u.a":{"expected":"INT","value":"z"}}}'},
        {"u": None, RESCUED: '{"unfit":{"u":{"expected":"STRUCT","value":"eA=="}}}'},
    ]
    reasons = {"u.a: not INT": 1, "u.x: no column": 1, "u.y: no column": 1, "u: not STRUCT": 1}
    assert quality == Quality(Tally({RESCUED_ROWS: 3}), rescued=reasons)


def test_a_duplicate_key_of_a_map_is_kept_with_both_values() -> None:
    twice, kind = bytes([4, 2, 97, 2, 2, 97, 4, 0]), {"type": "map", "values": "int"}
    messages = [message(twice)]
    [row], _, _ = rescued({7: record(("m", kind))}, columns(m=map_to("int")), messages)
    assert row == {"m": None, RESCUED: '{"unfit":{"m":{"expected":"MAP","value":{"a":1,"a":2}}}}'}
    [row], _, _ = rescued({7: record(("m", kind))}, columns(other="int"), messages)
    assert row == {"other": None, RESCUED: '{"unknown":{"m":{"a":1,"a":2}}}'}


def test_text_that_is_not_utf_8_is_malformed_where_no_column_holds_it() -> None:
    schema = record(("new", "int"), ("data", "string"))
    body = encoded("int", 1) + encoded("bytes", b"\xff")
    tables = (columns(new="int", data="string"), columns(new="int"), columns(data="int"), columns(data="binary"))
    for table in tables:
        [row], quality, reader = rescued({7: schema}, table, [message(body)])
        assert (row, quality) == (MALFORMED, Quality())
        [[found]] = reader.explain(pa.array([message(body)]), table)
        assert found.kind == "more than 1 MiB, or text that is not UTF-8, that no column holds"


@pytest.mark.parametrize(("size", "lands"), [(LARGEST_REST_BYTES - 22, True), (LARGEST_REST_BYTES - 21, False)])
def test_a_message_whose_rest_is_too_large_is_malformed_and_nothing_is_cut(size: int, lands: bool) -> None:  # noqa: FBT001 - a parameter of the test
    schema = record(("new", "string"), ("held", "string"))
    value = {"new": "é" * (size // 2) + "x" * (size % 2), "held": "x" * 2 * LARGEST_REST_BYTES}
    row = kept(schema, value, columns(held="string"))
    if lands:
        assert len(row[RESCUED].encode()) == LARGEST_REST_BYTES
        assert json.loads(row[RESCUED]) == {"unknown": {"new": value["new"]}}
    else:
        assert row == MALFORMED


def test_items_and_entries_are_named_by_their_place() -> None:
    line = record(("price", "double"), ("new", ["null", "int"]), name="Line")
    schema = record(("lines", {"type": "array", "items": ["null", line]}), ("tags", {"type": "map", "values": "Line"}))
    lines = [None, {"price": 0.5, "new": None}, {"price": 0.1, "new": 1}]
    table = columns(lines=list_of(columns(price="float")), tags=map_to(columns(price="float")))
    row = kept(schema, {"lines": lines, "tags": {"é.": {"price": 0.1, "new": None}}}, table)
    assert row["lines"] == [None, {"price": 0.5}, {"price": None}]
    assert row["tags"] == [("é.", {"price": None})]
    assert json.loads(row[RESCUED]) == {
        "unknown": {"lines[2].new": 1},
        "unfit": {
            "lines[2].price": {"expected": "FLOAT", "value": 0.1},
            'tags{"é."}.price': {"expected": "FLOAT", "value": 0.1},
        },
    }


def test_blocks_of_an_array_may_say_their_size() -> None:
    schema = record(("new", {"type": "array", "items": "int"}), ("id", "int"))
    sized = bytes([3, 4, 2, 4, 2, 6, 0, 8])  # two items in two bytes; one item; the end; then 4
    [row], _, _ = rescued({7: schema}, columns(id="int"), [message(sized)])
    assert row == {"id": 4, RESCUED: '{"unknown":{"new":[1,2,3]}}'}


def test_messages_of_many_lengths_are_kept_each_with_its_own_items() -> None:
    """A list that fails after some of its items is NULL, and the lists beside it keep theirs."""
    schema = record(("list", {"type": "array", "items": "long"}), ("id", "int"))
    table = Struct(
        (Field(1, "list", required=False, type=ListOf(required("element", "int"))), *columns(id="int").fields)
    )
    lists = [[number] * number for number in range(40)]
    for number in range(0, 40, 3):
        lists[number].append(2**40)
    bodies = [message(encoded(schema, {"list": one, "id": number})) for number, one in enumerate(lists)]
    found, _, _ = rescued({7: schema}, table, bodies)
    for number, (row, one) in enumerate(zip(found, lists, strict=True)):
        unfit = {"unfit": {"list": {"expected": "ARRAY", "value": one}}}
        fits = number % 3 > 0
        assert (row["id"], row["list"]) == (number, one if fits else None)
        assert json.loads(row[RESCUED] or "{}") == ({} if fits else unfit)
