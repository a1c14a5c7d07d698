"""The types of Debezium and Kafka Connect in JSON: the very value in the table, or malformed."""

import base64
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakesink.rows.plan import BinaryEncoding
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type
from testkit.examples import examples
from testkit.tasks import exactly
from tests.decode.debezium.events import batch, decoded, decoder, event, table, text, wrapped
from tests.decode.test_exact_json import DECIMALS, as_decimal

some = examples(12)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
TIME, DATA, CONNECT = "io.debezium.time.", "io.debezium.data.", "org.apache.kafka.connect.data."
MALFORMED = "malformed"
TEXTS = Primitive("string")


def one(column: str, value: Any, type_name: str | None, name: str = "", **parameters: str) -> Any:
    """What a value becomes; without a schema if its type is None."""
    payload = event("c", {"id": 1, "c": value})
    kind = {"type": type_name, "name": name, "parameters": parameters}
    document = payload if type_name is None else wrapped(payload, id={"type": "int64"}, c=kind)
    changes, found = decoded(table(c=column), document)
    return MALFORMED if found.malformed else changes[0][1]["c"]


def digits(unscaled: int, extra: int = 0) -> str:
    return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1 + extra, "big", signed=True)).decode()


@some
@given(st.integers(-(10**40), 10**40), st.integers(0, 40), DECIMALS, st.integers(0, 20))
@example(10**38 - 1, 0, (38, 0), 0)
@example(-(10**38), 38, (38, 38), 0)
@example(2**127, 0, (38, 0), 0)
@example(0, 5, (1, 0), 16)
def test_a_decimal_in_base64_is_the_very_decimal_or_malformed(
    unscaled: int, written: int, size: tuple[int, int], extra: int
) -> None:
    column = f"decimal({size[0]}, {size[1]})"
    expected = exactly(as_decimal(f"{unscaled}E-{written}", *size))
    value = digits(unscaled, extra)
    assert exactly(one(column, value, "bytes", f"{CONNECT}Decimal", scale=str(written))) == expected
    assert exactly(one(column, {"scale": written, "value": value}, "struct", f"{DATA}VariableScaleDecimal")) == expected


@pytest.mark.parametrize(
    "value", ["", "A", "AA=", "AB==", "AA ==", "-_==", "é", [1], {"scale": 2}, True, digits(10**4500)]
)
def test_digits_that_no_encoder_writes_are_malformed(value: Any) -> None:
    assert one("decimal(38, 2)", value, "bytes", f"{CONNECT}Decimal", scale="2") == MALFORMED
    assert one("decimal(38, 2)", {"scale": 2, "value": value}, "struct", f"{DATA}VariableScaleDecimal") == MALFORMED


@pytest.mark.parametrize("scale", [None, 1.5, "2", 10**9, -(10**9), "x" * 99])
def test_a_scale_that_is_no_small_whole_number_is_malformed(scale: Any) -> None:
    value = {"scale": scale, "value": digits(5)}
    assert one("decimal(38, 2)", value, "struct", f"{DATA}VariableScaleDecimal") == MALFORMED


def test_decimals_as_numbers_and_texts_are_read_too() -> None:
    assert one("decimal(9, 2)", 1234, "bytes", f"{CONNECT}Decimal", scale="2") == Decimal("1234.00")
    assert one("decimal(9, 2)", "12.34", "string") == Decimal("12.34")
    assert one("decimal(9, 2)", "12.34", None) == Decimal("12.34")
    assert one("decimal(9, 2)", "1234", "bytes", f"{CONNECT}Decimal", scale="2") == Decimal("-26588.24")


VARIABLE = {"type": "struct", "name": f"{DATA}VariableScaleDecimal"}


@some
@given(st.integers(-(10**18), 10**18), st.integers(0, 6))
@example(int.from_bytes(base64.b64decode("1234"), "big", signed=True), 2)
@example(int.from_bytes(base64.b64decode("12345678"), "big", signed=True), 0)
def test_decimals_within_arrays_maps_and_structs_are_the_very_decimals(unscaled: int, scale: int) -> None:
    expected, value = Decimal(unscaled).scaleb(-scale), digits(unscaled)
    inner = Primitive("decimal(25, 6)")
    written = {"type": "bytes", "name": f"{CONNECT}Decimal", "parameters": {"scale": str(scale)}}
    element, key = Field(11, "element", required=False, type=inner), Field(12, "key", required=True, type=TEXTS)
    a, b = Field(13, "a", required=False, type=inner), Field(14, "b", required=False, type=TEXTS)
    named = {"fields": [written | {"field": "a"}, {"field": "b", "type": "string"}], "type": "struct"}
    cases: list[tuple[Type, Any, Any, Any]] = [
        (ListOf(element), {"type": "array", "items": written}, [value, None], [expected, None]),
        (ListOf(element), {"type": "array", "items": VARIABLE}, [{"scale": scale, "value": value}], [expected]),
        (MapOf(key, element), {"type": "map", "values": written}, {"é": value}, [("é", expected)]),
        (Struct((a, b)), named, {"b": "1234", "a": value, "c": 1.50}, {"a": expected, "b": "1234"}),
    ]
    for kind, schema, given_value, found_value in cases:
        payload = event("c", {"id": 1, "c": given_value})
        changes, found = decoded(table(c=kind), wrapped(payload, id={"type": "int64"}, c=schema))
        assert (changes[0][1]["c"], found.malformed) == (found_value, 0)


@pytest.mark.parametrize("bad", ["1 2", "12345", "", True, {"a": 1}, "AB=="])
def test_what_is_no_decimal_within_an_array_is_malformed_and_named(bad: Any) -> None:
    written = {"type": "bytes", "name": f"{CONNECT}Decimal", "parameters": {"scale": "2"}}
    kind = ListOf(Field(11, "element", required=False, type=Primitive("decimal(25, 6)")))
    document = wrapped(event("c", {"id": 1, "c": [bad]}), id={"type": "int64"}, c={"type": "array", "items": written})
    changes, found = decoded(table(c=kind), document)
    assert (changes, found.malformed, found.misfits[0].column) == ([], 1, "c")


PLAIN, BYTES = {"type": "string"}, {"type": "bytes"}
PRICE = {"type": "bytes", "name": f"{CONNECT}Decimal", "parameters": {"scale": "2"}}


def _with_price(name: str, kind: Type, written: dict[str, Any] | None) -> tuple[Struct, dict[str, Any]]:
    """A struct of a decimal and another part, and its type in a schema."""
    fields = [PRICE | {"field": "d"}, *([written | {"field": name}] if written is not None else [])]
    parts = (
        Field(50, "d", required=False, type=Primitive("decimal(9, 2)")),
        Field(51, name, required=False, type=kind),
    )
    return Struct(parts), {"type": "struct", "fields": fields}


@pytest.mark.parametrize(
    ("kind", "written", "value", "in_hex", "without"),
    [
        ("binary", PLAIN, "deadbeef", "deadbeef", None),
        ("binary", None, "deadbeef", "deadbeef", None),
        ("binary", BYTES, "3q2+7w==", "deadbeef", "deadbeef"),
        ("binary", BYTES, "deadbeef", "75e69d6de79f", "75e69d6de79f"),
        ("fixed[4]", PLAIN, "deadbeef", "deadbeef", None),
        ("fixed[4]", PLAIN, "3q2+7w==", None, "deadbeef"),
        ("fixed[4]", BYTES, "3q2+7w==", "deadbeef", "deadbeef"),
    ],
)
@pytest.mark.parametrize("place", ["struct", "array", "map"])
def test_each_part_of_a_nested_column_is_read_by_its_own_type(
    kind: str, written: dict[str, Any] | None, value: str, in_hex: str | None, without: str | None, place: str
) -> None:
    part, key = Field(60, "element", required=False, type=Primitive(kind)), Field(61, "key", required=True, type=TEXTS)
    inner: tuple[Type, dict[str, Any] | None, Any] = {
        "struct": (part.type, written, value),
        "array": (ListOf(part), written and {"type": "array", "items": written}, [value]),
        "map": (MapOf(key, part), written and {"type": "map", "values": written}, {"k": value}),
    }[place]
    column, schema = _with_price("b", inner[0], inner[1])
    document = wrapped(event("c", {"id": 1, "s": {"d": digits(1234), "b": inner[2]}}), id={"type": "int64"}, s=schema)
    for encoding, expected in ((BinaryEncoding.HEX, in_hex), (None, without)):
        changes, found = decoded(table(s=column), document, binary_encoding=encoding)
        if expected is None:
            assert (changes, found.malformed) == ([], 1)
            continue
        right = bytes.fromhex(expected)
        nested = {"struct": right, "array": [right], "map": [("k", right)]}[place]
        assert changes[0][1]["s"] == {"d": Decimal("12.34"), "b": nested}


def test_a_key_of_a_map_beside_a_decimal_is_a_text() -> None:
    key, value = Field(60, "key", required=True, type=Primitive("binary")), Field(61, "v", required=False, type=TEXTS)
    column, schema = _with_price("m", MapOf(key, value), {"type": "map", "values": PLAIN})
    document = wrapped(event("c", {"id": 1, "s": {"d": digits(1234), "m": {"beef": "v"}}}), s=schema)
    changes, _ = decoded(table(s=column), document, binary_encoding=BinaryEncoding.HEX)
    assert changes[0][1]["s"] == {"d": Decimal("12.34"), "m": [(b"\xbe\xef", "v")]}


@pytest.mark.parametrize("column", ["string", "long", "double", "decimal(38, 0)", "boolean", "uuid"])
def test_bytes_never_become_a_number_or_a_text(column: str) -> None:
    assert one(column, "1234", "bytes") == MALFORMED
    assert one(column, None, "bytes") is None
    assert one("binary", "1234", "bytes") == base64.b64decode("1234")
    assert one("fixed[3]", "1234", "bytes") == base64.b64decode("1234")


MOMENTS = {"Timestamp": 1000, "MicroTimestamp": 1, "NanoTimestamp": -1000}


@some
@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**15), 10**15))
@example(2**63 - 1)
@example(-1)
@example(9223372036854775)
@example(9223372036854776)
def test_a_moment_of_every_unit_is_the_very_microsecond_or_malformed(number: int) -> None:
    for name, factor in MOMENTS.items():
        micros, rest = (number * factor, 0) if factor > 0 else divmod(number, -factor)
        document = wrapped(
            event("c", {"id": 1, "c": number}), id={"type": "int64"}, c={"type": "int64", "name": TIME + name}
        )
        found = decoder(table(c="timestamp"))
        rows = [one.rows for one in found.rows(iter([batch([text(document)])]))]
        fits = rest == 0 and -(2**63) <= micros < 2**63
        assert [one.column("c").cast(pa.int64()).to_pylist() for one in rows] == ([[micros]] if fits else [])
        assert bool(found.malformed) is not fits


def test_moments_have_the_zone_of_their_column_or_are_malformed() -> None:
    at = datetime(2024, 2, 29, 12, 0, 0, 123000, tzinfo=UTC).replace(tzinfo=None)
    millis, zoned = 1_709_208_000_123, "2024-02-29T12:00:00.123Z"
    assert one("timestamp", millis, "int64", f"{CONNECT}Timestamp") == at
    assert one("timestamptz", millis, "int64", f"{CONNECT}Timestamp") == at.replace(tzinfo=UTC)
    assert one("timestamptz", millis, "int64", f"{TIME}Timestamp") == MALFORMED
    assert one("timestamptz", zoned, "string", f"{TIME}ZonedTimestamp") == at.replace(tzinfo=UTC)
    assert one("timestamptz", "2024-02-29T13:00:00.123+01:00", "string", f"{TIME}ZonedTimestamp") == at.replace(
        tzinfo=UTC
    )
    assert one("timestamp", zoned, "string", f"{TIME}ZonedTimestamp") == MALFORMED
    assert one("timestamp", zoned, "string", f"{TIME}IsoTimestamp") == at
    assert one("timestamp", zoned, None) == at
    assert one("timestamp", zoned + "Z", None) == MALFORMED
    for name in ("IsoTimestamp", "ZonedTimestamp"):  # nine digits, though the last three are zeros
        column = "timestamp" if name == "IsoTimestamp" else "timestamptz"
        assert one(column, "2024-02-29T12:00:00.123456000Z", "string", TIME + name) == MALFORMED
    assert one("timestamp", "2024-02-29T13:00:00.123+01:00", None) == MALFORMED
    assert one("long", millis, "int64", f"{TIME}Timestamp") == millis


def test_times_and_dates_of_every_unit() -> None:
    noon = time(12, 0, 0, 5000)
    for name, number in {"Time": 43_200_005, "MicroTime": 43_200_005_000, "NanoTime": 43_200_005_000_000}.items():
        assert one("time", number, "int64", TIME + name) == noon
        assert one("time", -1000, "int64", TIME + name) == MALFORMED
    assert one("time", 43_200_005, "int32", f"{CONNECT}Time") == noon
    assert one("time", 86_400_000, "int32", f"{CONNECT}Time") == MALFORMED
    assert one("time", 86_399_999_999, "int64", f"{TIME}MicroTime") == time(23, 59, 59, 999_999)
    assert one("time", "12:00:00.005Z", "string", f"{TIME}IsoTime") == noon
    assert one("time", "12:00:00.005Z", "string", f"{TIME}ZonedTime") == noon
    assert one("time", "12:00:00.005+01:00", "string", f"{TIME}ZonedTime") == MALFORMED
    for name in (f"{TIME}Date", f"{CONNECT}Date"):
        assert one("date", 19_782, "int32", name) == date(2024, 2, 29)
        assert one("date", -719_162, "int32", name) == date(1, 1, 1)
        assert one("date", 1.5, "int32", name) == MALFORMED
        assert one("date", 2**31, "int32", name) == MALFORMED
    assert one("date", "2024-02-29Z", "string", f"{TIME}IsoDate") == date(2024, 2, 29)
    assert one("date", 19_782, "int32") == MALFORMED


def test_without_a_schema_dates_are_days_and_other_moments_must_be_texts() -> None:
    assert one("date", 19_782, None) == date(2024, 2, 29)
    assert one("date", "2024-02-29", None) == date(2024, 2, 29)
    for column in ("timestamp", "timestamptz", "time"):
        document = event("c", {"id": 1, "c": 1_709_208_000_123_456})
        _, found = decoded(table(c=column), document)
        assert "time.precision.mode=isostring" in found.misfits[0].expected
        assert "schemas.enable=true" in found.misfits[0].expected
        _, found = decoded(table(c=column), wrapped(document, c={"type": "int64"}))
        assert found.misfits[0].found == "a whole number of 16 digits (int64)"


@pytest.mark.parametrize("number", [0, 12, 1200])
@pytest.mark.parametrize("type_name", [None, "int32"])
def test_a_number_without_a_unit_is_no_time(number: int, type_name: str | None) -> None:
    assert one("time", number, type_name) == MALFORMED
    assert one("time", f"{number:02}", type_name and "string") == MALFORMED


def test_other_types_follow_the_rules_for_json() -> None:
    known = "5c2ee8a3-1d9c-4a6c-8b6e-1f0c2d3e4f50"
    assert one("uuid", known, "string", f"{DATA}Uuid") == bytes.fromhex(known.replace("-", ""))
    assert one("string", '{"a": 1.50}', "string", f"{DATA}Json") == '{"a": 1.50}'
    assert one("int", 2024, "int32", f"{TIME}Year") == 2024
    assert one("boolean", True, "boolean") is True  # noqa: FBT003 - a value


def test_documents_of_several_schemas_in_a_batch_have_their_own_types() -> None:
    documents = []
    for number in range(120):
        name, factor = list(MOMENTS.items())[number % 2]
        kind = {"type": "int64", "name": TIME + name, "doc": str(number // 3)}
        documents.append(wrapped(event("c", {"id": number, "c": number * 1000 // factor}), c=kind))
    changes, _ = decoded(table(c="timestamp"), *documents)
    assert [row["c"] for _, row, _ in changes] == [
        EPOCH + timedelta(microseconds=number * 1000) for number in range(120)
    ]
