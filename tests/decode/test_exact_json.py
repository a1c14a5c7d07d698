"""A JSON value of any size, quoted or not, at any depth, is the very value in the table, or malformed; nothing else."""

import base64
import binascii
import json
import math
import re
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakesink.decode.json_digits import respelled
from lakesink.decode.json_values import JsonReader
from lakesink.rows.plan import BinaryEncoding
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type
from testkit.examples import examples
from testkit.tasks import exactly

MALFORMED = "malformed"
READER = JsonReader(encoding=BinaryEncoding.BASE64)
few, some, many = (examples(count) for count in (10, 25, 80))


def optional(number: int, name: str, kind: Type) -> Field:
    return Field(number, name, required=False, type=kind)


def table_of(kind: Primitive) -> Struct:
    """The same type everywhere that a document has room for one."""
    key = Field(7, "key", required=True, type=Primitive("string"))
    places: dict[str, Type] = {
        "c": kind,
        "struct": Struct((optional(5, "c", kind),)),
        "list": ListOf(optional(6, "element", kind)),
        "map": MapOf(key, optional(8, "value", kind)),
        "deep": ListOf(optional(9, "element", Struct((optional(10, "c", ListOf(optional(11, "element", kind))),)))),
    }
    return Struct(tuple(optional(20 + at, name, each) for at, (name, each) in enumerate(places.items())))


PLACES: dict[str, Callable[[Any], Any]] = {
    '{"c": %s}': lambda row: row["c"],
    '{"x": {"c": 1.5}, "\\u0063":%s, "c": 2}': lambda row: row["c"],
    '{"note": "\\"c\\": 1.5", "c" :\t%s\n}': lambda row: row["c"],
    '{"struct": {"c": %s, "other": 1.00000000000000000001}}': lambda row: row["struct"]["c"],
    '{"\\u0073truct": {"\\u0063": %s}}': lambda row: row["struct"]["c"],
    '{"list": [null, %s ]}': lambda row: row["list"][1],
    '{"map": {"a\\"b": null,"k": %s,}}': lambda row: row["map"][1][1],
    '{"deep": [{}, {"c": [%s]}]}': lambda row: row["deep"][1]["c"][0],
}


def everywhere(kind: str, value: str) -> list[Any]:
    """What becomes of a value of JSON at each place of a document."""
    parsed = READER.read(pa.array([place.replace("%s", value) for place in PLACES]), table_of(Primitive(kind)))
    parsed.values.validate(full=True)
    wrong = [False] * len(PLACES) if parsed.misfits is None else parsed.misfits.to_pylist()
    rows = _shown(parsed.values)
    return [MALFORMED if bad else found(row) for bad, found, row in zip(wrong, PLACES.values(), rows, strict=True)]


def _shown(values: pa.Array) -> list[Any]:
    rows: list[Any] = values.to_pylist()
    return rows


def same_everywhere(kind: str, value: str, expected: Any) -> None:
    assert [exactly(found) for found in everywhere(kind, value)] == [exactly(expected)] * len(PLACES), (kind, value)


DIGITS = st.one_of(st.integers(0, 999), st.integers(0, 10**20), st.integers(0, 10**45)).map(str)
FRACTIONS = st.text("0123456789", min_size=1, max_size=4) | st.text("0123456789", min_size=1, max_size=45)
EXPONENTS = st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 45))
NUMBERS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    DIGITS,
    st.just("") | FRACTIONS.map(".{}".format),
    st.just("") | st.just("") | EXPONENTS,
)
QUOTES = st.sampled_from(["", '"'])
DECIMALS = st.integers(1, 38).flatmap(lambda precision: st.tuples(st.just(precision), st.integers(0, precision)))


@many
@given(NUMBERS, QUOTES, DECIMALS)
@example("123456789012345678901234567890", "", (38, 18))
@example("1e30", '"', (38, 18))
@example("9" * 39, "", (38, 0))
@example("933436663242881441487944604007540.97", "", (38, 2))
@example("0.30000000000000000001", "", (38, 1))
@example("0.30000000000000000001", "", (38, 20))
@example("1e-400", "", (9, 2))
@example("1e400", "", (9, 2))
@example("1e999999999999999999999", '"', (9, 2))
@example("0e999999999999999999999", '"', (9, 2))
@example("-0.0", "", (9, 2))
@example("-0", "", (9, 2))
@example("00000000000000000000000000000000000000000001.5", '"', (9, 2))
@example("1." + "0" * 60, "", (9, 2))
def test_a_number_is_the_very_decimal_or_malformed(number: str, quote: str, size: tuple[int, int]) -> None:
    kind = f"decimal({size[0]}, {size[1]})"
    same_everywhere(kind, quote + number + quote, as_decimal(number, *size))


def as_decimal(number: str, precision: int, scale: int) -> Any:
    try:
        exact = Context(prec=precision, traps=[Inexact, InvalidOperation])
        return Decimal(number).quantize(Decimal(1).scaleb(-scale), context=exact)
    except (Inexact, InvalidOperation):
        return MALFORMED


@many
@given(NUMBERS, QUOTES, st.sampled_from(["int", "long"]))
@example("9223372036854775808", "", "long")
@example("-9223372036854775808", "", "long")
@example("18446744073709551616", "", "long")
@example("4294967296", "", "int")
@example("-0", "", "long")
def test_a_number_is_the_very_whole_number_or_malformed(number: str, quote: str, kind: str) -> None:
    bound = 2**31 if kind == "int" else 2**63
    whole = int(number) if re.fullmatch("-?[0-9]+", number) else None
    fits = whole is not None and -bound <= whole < bound
    same_everywhere(kind, quote + number + quote, whole if fits else MALFORMED)


@many
@given(
    NUMBERS | st.floats(allow_nan=False, allow_infinity=False).map(repr), QUOTES, st.sampled_from(["float", "double"])
)
@example("1e400", "", "double")
@example("-1e-400", "", "double")
@example("4.9e-324", "", "double")
@example("9007199254740993", "", "double")
@example("18446744073709551617", "", "double")
@example("3.4028235677973366e38", "", "float")
@example("-0.0", "", "double")
@example("-0", "", "double")
@example("-0", "", "float")
def test_a_number_is_the_nearest_double_or_the_float_nearest_to_it(number: str, quote: str, kind: str) -> None:
    with np.errstate(over="ignore"):
        nearest = float(number) if kind == "double" else float(np.float32(float(number)))
    same_everywhere(kind, quote + number + quote, MALFORMED if math.isinf(nearest) else nearest)


@many
@given(NUMBERS)
@example("-0")
@example("1.50")
@example("1E5")
@example("12345678901234567890.123456789")
def test_a_number_in_a_column_of_text_is_its_digits_as_they_are_written(number: str) -> None:
    same_everywhere("string", number, number)


@some
@given(st.text(), st.booleans())
def test_a_string_in_a_column_of_text_is_its_characters(text: str, ascii_only: bool) -> None:  # noqa: FBT001 - drawn
    text = text.encode("utf-16", "replace").decode("utf-16")
    same_everywhere("string", json.dumps(text, ensure_ascii=ascii_only), text)


NESTED = st.recursive(
    NUMBERS | st.sampled_from(["null", "true", '"a, b"', '"]\\""', '""']),
    lambda below: (
        st.lists(below, max_size=3).map(lambda parts: f"[{' , '.join(parts)}]")
        | st.lists(below, max_size=3).map(
            lambda parts: "{" + ",".join(f'"{at}" :\n{part}' for at, part in enumerate(parts)) + "}"
        )
    ),
    max_leaves=5,
).filter(lambda text: text[0] in "[{")


@some
@given(NESTED)
@example("[0.1234567890123456789]")
@example('{"c": 1e-400}')
@example('{"x": 1.10, "y": [-0, "\\u0041\\/"]}')
@example('["\\u0041", [1, "\\n"]]')
@example("[1.50]")
def test_what_is_nested_in_a_column_of_text_is_its_json_as_it_is_written(value: str) -> None:
    written = "".join(re.findall(r'"(?:[^"\\]|\\.)*"|[^\s"]', value))
    same_everywhere("string", value, written)


WIDE_NAMES = [f"feature_{at:03d}" for at in range(120)] + ["a/b", 'a"b', "é", "\U0001f600"]


@few
@given(NUMBERS, st.sampled_from(WIDE_NAMES), st.booleans(), st.sampled_from(["string", "decimal(38, 10)", "double"]))
@example("-0", "feature_007", False, "double")  # noqa: FBT003 - drawn
@example("1.10", "feature_119", True, "string")  # noqa: FBT003 - drawn
@example("0.30000000000000000001", "\U0001f600", False, "decimal(38, 10)")  # noqa: FBT003 - drawn
def test_a_number_in_a_wide_table_is_exact_whatever_its_key_is_called(
    number: str,
    name: str,
    escaped: bool,  # noqa: FBT001 - drawn
    kind: str,
) -> None:
    struct = Struct(tuple(optional(at, each, Primitive(kind)) for at, each in enumerate(WIDE_NAMES, 1)))
    key = "".join(f"\\u{ord(char):04x}" for char in name) if escaped and name.isascii() else json.dumps(name)[1:-1]
    parsed = READER.read(pa.array([f'{{"other": 1.5, "{key}": {number}}}']), struct)
    found = MALFORMED if parsed.misfits is not None else _shown(parsed.values)[0][name]
    wanted = number if kind == "string" else float(number) if kind == "double" else as_decimal(number, 38, 10)
    assert exactly(found) == exactly(MALFORMED if wanted in (math.inf, -math.inf) else wanted)


def test_the_search_costs_a_wide_table_of_similar_names_no_more_than_a_fraction_of_its_reading() -> None:
    struct = Struct(tuple(optional(at, f"feature_{at:03d}", Primitive("string")) for at in range(1, 201)))
    document = json.dumps({field.name: "some text" for field in struct.fields} | {"latitude": 1.5})
    texts = pa.array([document] * 300)
    READER.read(texts, struct)
    started = process_time()
    respelled(texts, struct)
    searched = process_time()
    READER.read(texts, struct)
    assert searched - started < process_time() - searched


FRACTION_OF_SECOND = st.just("") | st.text("0123456789", min_size=1, max_size=9).map(".{}".format)
ZONES = st.sampled_from(["", "Z", "+01:00", "-23:59", "+0130", "+05"])
MOMENTS = st.builds(
    "{}{}{}{}{}".format,
    st.dates().map(date.isoformat) | st.sampled_from(["2023-02-29", "2024-2-29", "2024-13-01", "+2024-01-01"]),
    st.sampled_from(["T", " "]),
    st.times().map(lambda found: found.replace(microsecond=0).isoformat())
    | st.sampled_from(["24:00:00", "12:60:00", "12:00:60"]),
    FRACTION_OF_SECOND,
    ZONES,
)


@many
@given(MOMENTS, st.sampled_from(["timestamp", "timestamptz"]))
@example("2024-02-29T12:00:00.1234567", "timestamp")
@example("9999-12-31T23:59:59.999999-01:00", "timestamptz")
@example("0001-01-01T00:00:00+01:00", "timestamptz")
@example("2024-02-29T23:59:60", "timestamp")
def test_a_text_is_the_very_moment_or_malformed(text: str, kind: str) -> None:
    parsed = READER.read(pa.array([f'{{"c": "{text}"}}']), Struct((optional(1, "c", Primitive(kind)),)))
    wrong = parsed.misfits is not None and parsed.misfits[0].as_py()
    found = MALFORMED if wrong else parsed.values.field("c").view(pa.int64())[0].as_py()
    assert found == as_micros(text, zoned=kind == "timestamptz")


def as_micros(text: str, *, zoned: bool) -> Any:
    """Of the calendar that Python has, carried on beyond its ends; more than six digits of a second are malformed."""
    found = re.fullmatch(r"(.{19}(?:\.[0-9]{1,6})?)(|Z|([+-])([0-9]{2}):?([0-9]{2})?)", text)
    if not found or bool(found[2]) != zoned:
        return MALFORMED
    try:
        moment = datetime.fromisoformat(found[1])
    except ValueError:
        return MALFORMED
    if moment.isoformat(sep=text[10])[:19] != text[:19]:
        return MALFORMED  # Python takes 24:00:00 for the next day
    offset = timedelta(hours=int(found[4] or 0), minutes=int(found[5] or 0)) * (-1 if found[3] == "-" else 1)
    return (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC) - offset) // timedelta(microseconds=1)


@some
@given(st.dates().map(date.isoformat) | st.text("0123456789-", min_size=8, max_size=11))
def test_a_text_is_the_very_date_or_malformed(text: str) -> None:
    def expected() -> Any:
        try:
            return date.fromisoformat(text) if re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else MALFORMED
        except ValueError:
            return MALFORMED

    if not text.startswith("0000"):  # a year that Arrow has and Python has not
        same_everywhere("date", f'"{text}"', expected())


@some
@given(
    st.times().map(time.isoformat) | st.from_regex(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{0,8})?)?", fullmatch=True)
)
def test_a_text_is_the_very_time_or_malformed(text: str) -> None:
    def expected() -> Any:
        shape = re.fullmatch(r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?", text)
        try:
            return time.fromisoformat(text) if shape and not text.startswith("24") else MALFORMED
        except ValueError:
            return MALFORMED

    same_everywhere("time", f'"{text}"', expected())


CANONICAL = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@some
@given(
    st.uuids()
    .map(str)
    .flatmap(lambda text: st.sampled_from([text, text.upper(), text.replace("-", ""), f"{{{text}}}"]))
)
@example("1_2_3_4_5_6_7_8_9_a_b_c_d_e_f_12----")
@example("urn:uuid:00000000-0000-0000-0000-000000")
@example("00000000-0000-0000-0000-00000000000")
def test_a_text_is_the_very_uuid_in_its_canonical_form_or_malformed(text: str) -> None:
    same_everywhere("uuid", json.dumps(text), uuid.UUID(text).bytes if CANONICAL.fullmatch(text) else MALFORMED)


@some
@given(st.binary(max_size=9).map(lambda found: base64.b64encode(found).decode()) | st.text("AB+/=-_ \n", max_size=8))
@example("AB==")
@example("AA==AA==")
def test_a_text_is_the_very_bytes_as_an_encoder_writes_them_or_malformed(text: str) -> None:
    def expected() -> Any:
        try:
            found = base64.b64decode(text, validate=True)
        except binascii.Error:
            return MALFORMED
        return found if base64.b64encode(found).decode() == text else MALFORMED

    same_everywhere("binary", json.dumps(text), expected())


@pytest.mark.parametrize("kind", ["boolean", "date", "time", "timestamp", "timestamptz", "uuid", "binary", "fixed[3]"])
@few
@given(number=NUMBERS, quote=QUOTES)
@example(number="12", quote="")
def test_a_number_is_malformed_where_no_number_fits(kind: str, number: str, quote: str) -> None:
    if not quote or kind not in ("binary", "fixed[3]"):  # for those digits may be Base64
        same_everywhere(kind, quote + number + quote, MALFORMED)
