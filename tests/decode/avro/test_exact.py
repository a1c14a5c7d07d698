"""An Avro value of any size is the very value in the table, or malformed; also beside values of other schemas."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from lakesink.decode.avro.messages import MessageReader
from lakesink.decode.avro.schema import parse_writer_schema
from testkit.examples import examples
from testkit.tasks import exactly
from tests.decode.avro.messages import MALFORMED, columns, decoded, encoded, logical, message, record, without_meaning

some, many = (examples(count) for count in (30, 80))
SIZES = st.integers(1, 38).flatmap(lambda precision: st.tuples(st.just(precision), st.integers(0, precision)))
UNSCALED = st.one_of(st.integers(-999, 999), st.integers(-(2**127), 2**127), st.integers(-(10**42), 10**42))
LONGS = st.one_of(
    st.integers(-999, 999), st.integers(-(2**63), 2**63 - 1), st.integers(0, 63).map(lambda bit: 2**bit - 1)
)


def one(kind: Any, value: Any, column: str) -> Any:
    """A value as it is written, whatever it means, in a message with one field."""
    schema = record(("c", kind))
    [row] = decoded({7: schema}, columns(c=column), [message(encoded(without_meaning(schema), {"c": value}))])
    return row if row == MALFORMED else row["c"]


def in_decimal(value: Decimal, precision: int, scale: int) -> Any:
    try:
        exact = Context(prec=precision, traps=[Inexact, InvalidOperation])
        return value.quantize(Decimal((0, (1,), -scale)), context=exact)
    except (Inexact, InvalidOperation):
        return MALFORMED


@many
@given(UNSCALED, st.integers(0, 38), SIZES, st.sampled_from([0, 1, 8, 17, 20, 32]))
@example(10**30, 0, (38, 18), 0)
@example(10**38 - 1, 38, (38, 38), 0)
@example(-(10**38), 0, (38, 0), 20)
def test_a_decimal_of_any_scale_is_the_very_decimal_or_malformed(
    unscaled: int, written_scale: int, size: tuple[int, int], fixed_bytes: int
) -> None:
    length = fixed_bytes or unscaled.bit_length() // 8 + 1
    if unscaled.bit_length() >= 8 * length:
        return
    meaning = {"precision": 60, "scale": written_scale}
    fixed = logical("fixed", "decimal", name="D", size=length, **meaning)
    kind = fixed if fixed_bytes else logical("bytes", "decimal", **meaning)
    value = Decimal(unscaled).scaleb(-written_scale, Context(prec=80))
    found = one(kind, unscaled.to_bytes(length, "big", signed=True), f"decimal({size[0]}, {size[1]})")
    assert exactly(found) == exactly(in_decimal(value, *size))


@many
@given(LONGS, SIZES)
@example(10**18, (38, 30))
def test_a_whole_number_is_the_very_decimal_or_malformed(number: int, size: tuple[int, int]) -> None:
    assert one("long", number, f"decimal({size[0]}, {size[1]})") == in_decimal(Decimal(number), *size)


@many
@given(LONGS, st.sampled_from(["int", "long", "float", "double"]))
def test_a_whole_number_is_the_very_number_or_malformed(number: int, column: str) -> None:
    kinds: dict[str, Any] = {"float": np.float32, "double": np.float64}
    there = kinds[column](number).item() if column in kinds else number
    fits = int(there) == number and (column != "int" or -(2**31) <= number < 2**31)
    assert exactly(one("long", number, column)) == exactly(there if fits else MALFORMED)


FLOATING = ("float", "double")


@many
@given(st.floats(), st.sampled_from(FLOATING), st.sampled_from(FLOATING))
def test_a_floating_number_is_the_very_number_or_malformed(number: float, written: str, column: str) -> None:
    with np.errstate(over="ignore"):
        narrow = float(np.float32(number))
    number = narrow if written == "float" else number
    fits = column == "double" or narrow == number or number != number  # noqa: PLR0124 - how a NaN is told
    assert exactly(one(written, number, column)) == exactly(number if fits else MALFORMED)


@many
@given(LONGS, st.sampled_from(["millis", "micros", "nanos"]), st.sampled_from(["timestamptz", "timestamp"]))
def test_a_moment_is_the_very_moment_or_malformed(number: int, unit: str, column: str) -> None:
    schema = record(("c", logical("long", f"{'local-' if column == 'timestamp' else ''}timestamp-{unit}")))
    reader = MessageReader({7: parse_writer_schema([str(schema).replace("'", '"')])}.get)
    found = reader.documents(pa.array([message(encoded(without_meaning(schema), {"c": number}))]), columns(c=column))
    micros, rest = divmod(number * {"millis": 1_000_000, "micros": 1_000, "nanos": 1}[unit], 1_000)
    fits = not rest and -(2**63) <= micros < 2**63
    assert (found.misfits is None) == fits
    if fits:
        assert found.values.field("c").view(pa.int64())[0].as_py() == micros


@some
@given(st.binary(max_size=12) | st.text(max_size=6).map(str.encode), st.sampled_from(["string", "binary", "fixed[4]"]))
def test_bytes_are_the_very_text_or_bytes_or_malformed(value: bytes, column: str) -> None:
    def expected() -> Any:
        if column == "string":
            try:
                return value.decode()
            except UnicodeDecodeError:
                return MALFORMED
        return value if column == "binary" or len(value) == 4 else MALFORMED

    assert one("bytes", value, column) == expected()


@some
@given(
    st.uuids().map(str).flatmap(lambda text: st.sampled_from([text, text.upper(), text.replace("-", ""), f"{text} "]))
)
@example("1_2_3_4_5_6_7_8_9_a_b_c_d_e_f_12----")
def test_a_text_is_the_very_uuid_in_its_canonical_form_or_malformed(text: str) -> None:
    fits = len(text) == 36 and text.count("-") == 4 and "_" not in text
    assert one("string", text, "uuid") == (UUID(text).bytes if fits else MALFORMED)


# Schemas that change by id within one batch


@dataclass(frozen=True)
class Version:
    """A field as one version of a schema has it: its type, values of it, and the column's value of each.

    Attributes:
        kind: Avro's type; None if this version has another name for the field.
        values: What is written.
        expected: What is to be in the table.
    """

    kind: Any
    values: tuple[Any, ...]
    expected: tuple[Any, ...]


def same(kind: Any, *values: Any) -> Version:
    return Version(kind, values, values)


EPOCH = date(1970, 1, 1)
MICRO = timedelta(microseconds=1)
MOMENT = datetime(2024, 2, 29, 12, 0, 0, 1000, UTC)
DATE, ENUM = logical("int", "date"), {"type": "enum", "name": "E", "symbols": ["A"]}
CENTS = logical("bytes", "decimal", precision=9, scale=2)
TENTHS = logical("fixed", "decimal", name="F", size=8, precision=18, scale=1)
FOUR_PLACES = logical("bytes", "decimal", precision=9, scale=4)
LOCAL = logical("long", "local-timestamp-micros")
CHANGES: dict[str, tuple[Version, ...]] = {
    "long": (
        same("int", 7, -(2**31)),
        same("long", 2**40, -(2**63)),
        same(["null", "int"], None, 5),
        Version("string", ("7",), (MALFORMED,)),
    ),
    "int": (same("int", 7), Version("long", (8, 2**31), (8, MALFORMED)), Version(DATE, (EPOCH,), (MALFORMED,))),
    "double": (
        same("float", 0.5),
        same("double", 0.1),
        Version("int", (3,), (3.0,)),
        Version("long", (2**53 + 1,), (MALFORMED,)),
    ),
    "string": (same("string", "é"), Version("bytes", (b"\xc3\xa9", b"\xff"), ("é", MALFORMED)), same(ENUM, "A")),
    "binary": (
        same("bytes", b"\xff"),
        Version("string", ("é", "abcd"), (MALFORMED, MALFORMED)),
        Version("int", (7,), (MALFORMED,)),
    ),
    "decimal(9, 2)": (
        same(CENTS, Decimal("1.25")),
        same(TENTHS, Decimal("1.5")),
        Version(FOUR_PLACES, (Decimal("1.2500"), Decimal("1.2345")), (Decimal("1.25"), MALFORMED)),
        Version("long", (7, 10**7), (Decimal(7), MALFORMED)),
        Version("bytes", (b"\x01",), (MALFORMED,)),
    ),
    "timestamptz": (
        same(logical("long", "timestamp-millis"), MOMENT),
        same(logical("long", "timestamp-micros"), MOMENT + MICRO),
        Version("long", (7,), (MALFORMED,)),
        Version(LOCAL, (MOMENT.replace(tzinfo=None),), (MALFORMED,)),
    ),
}


@many
@given(st.data())
def test_schemas_may_change_by_id_within_a_batch_and_no_value_is_read_by_another_s(data: st.DataObject) -> None:
    """A field promoted, of another type or scale, renamed, moved behind others, or left out."""
    names = data.draw(st.lists(st.sampled_from(list(CHANGES)), min_size=1, max_size=4, unique=True))
    table = columns(**{f"c{at}": name for at, name in enumerate(names)})
    schemas: dict[int, Any] = {}
    messages: list[bytes] = []
    expected: list[Any] = []
    for number in range(1, data.draw(st.integers(2, 5))):
        versions = {f"c{at}": data.draw(st.sampled_from(CHANGES[name])) for at, name in enumerate(names)}
        order = data.draw(st.permutations(list(versions)))
        spelling = {name: data.draw(st.sampled_from([name, name, name, f"renamed_{name}"])) for name in order}
        schemas[number] = record(*((spelling[name], versions[name].kind) for name in order))
        for _ in range(data.draw(st.integers(1, 3))):
            picks = {name: data.draw(st.integers(0, len(versions[name].values) - 1)) for name in order}
            row = {spelling[name]: versions[name].values[pick] for name, pick in picks.items()}
            messages.append(message(encoded(schemas[number], row), number))
            found = {n: versions[n].expected[picks[n]] if spelling[n] == n else None for n in versions}
            expected.append(MALFORMED if MALFORMED in found.values() else found)
    shuffled = data.draw(st.permutations(range(len(messages))))
    got = decoded(schemas, table, [messages[at] for at in shuffled])
    assert [exactly(row) for row in got] == [exactly(expected[at]) for at in shuffled]
