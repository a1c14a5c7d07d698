"""Each value becomes exact JSON; dates and times, also in the far future and before our era, do so or are refused."""

import datetime as dt
import json
import math
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lakesink.rows.lines import LineEncoder
from tests.files.test_parts import told

DAYS_OF_400_YEARS = 146_097
TO_1970 = 719_468  # days from 0000-03-01
MICROS_OF_DAY = 86_400_000_000
FIRST_YEAR, LAST_YEAR = -32767, 32767
FIRST, LAST = -(2**63), 2**63 - 1
INSTANT, LOCAL = pa.timestamp("us", "America/New_York"), pa.timestamp("us")


def date_of(days: int) -> tuple[int, str]:
    """Year and text of a day in the proleptic Gregorian calendar, by Python's integers alone."""
    era, day_of_era = divmod(days + TO_1970, DAYS_OF_400_YEARS)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day, month = day_of_year - (153 * shifted + 2) // 5 + 1, shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (month <= 2)
    return year, f"{'-' if year < 0 else ''}{abs(year):04}-{month:02}-{day:02}"


def time_of(micros: int) -> tuple[int, str]:
    """Year and text of a moment."""
    days, rest = divmod(micros, MICROS_OF_DAY)
    year, date = date_of(days)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return year, f"{date}T{clock}.{fraction:06}"


def first_of(year: int) -> int:
    """The days from 1970-01-01 to the first day of a year."""
    before = year - 1
    return 365 * before + before // 4 - before // 100 + before // 400 + 1 - 719_163


YEARS = (FIRST_YEAR - 1, FIRST_YEAR, -10_000, -9999, -400, -1, 0, 1, 2, 1582, 1970, 2000, 9999, 10_000, LAST_YEAR)
EDGES = [first_of(year) for year in (*YEARS, LAST_YEAR + 1)]
SOME = random.Random(7)
DAYS = [
    *(edge + step for edge in EDGES for step in (-1, 0, 1, 58, 59, 60)),
    *(SOME.randint(-(2**31), 2**31 - 1) for _ in range(200)),
    *(SOME.randint(first_of(FIRST_YEAR), first_of(LAST_YEAR)) for _ in range(2000)),
    -(2**31),
    2**31 - 1,
]
MICROS = [
    *(edge * MICROS_OF_DAY + step for edge in EDGES for step in (-(10**6), -1, 0, 1, 10**6, 123_456_789)),
    *(days * MICROS_OF_DAY + SOME.randrange(MICROS_OF_DAY) for days in DAYS if abs(days) < 10**8),
    *(SOME.randint(FIRST, LAST) for _ in range(500)),
    *(power * sign + step for power in (2**k for k in range(63)) for sign in (-1, 1) for step in (-1, 0, 1)),
    FIRST,
    FIRST + 1,
    LAST - 1,
    LAST,
]


def written(values: pa.Array) -> Any:
    """The JSON value of a single row; None if it is refused."""
    rows = pa.record_batch({"v": values})
    try:
        return json.loads(LineEncoder(rows.schema).encode(rows))["v"]
    except ValueError as error:
        assert "outside the range" in str(error)  # noqa: PT017 - a refusal is a result here
        return "refused"


def wanted(year: int, text: str) -> str:
    return text if FIRST_YEAR <= year <= LAST_YEAR else "refused"


def test_the_reference_knows_some_dates() -> None:
    assert [date_of(first_of(year)) for year in YEARS] == [
        (year, f"{'-' if year < 0 else ''}{abs(year):04}-01-01") for year in YEARS
    ]
    assert time_of(LAST) == (294_247, "294247-01-10T04:00:54.775807")
    assert time_of(-1) == (1969, "1969-12-31T23:59:59.999999")
    assert date_of(11_016) == (2000, "2000-02-29")


def test_every_date_is_exact_or_refused() -> None:
    for days in DAYS:
        assert written(pa.array([days], pa.int32()).cast(pa.date32())) == wanted(*date_of(days)), days


@pytest.mark.parametrize(("kind", "zone"), [(INSTANT, "Z"), (LOCAL, "")], ids=["instants", "local times"])
def test_every_time_is_exact_or_refused(kind: pa.DataType, zone: str) -> None:
    for micros in MICROS:
        year, text = time_of(micros)
        assert written(pa.array([micros], pa.int64()).cast(kind)) == wanted(year, f"{text}{zone}"), micros


def in_list(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays([0, 1], values)


def in_large_list(values: pa.Array) -> pa.Array:
    return pa.LargeListArray.from_arrays([0, 1], values)


def in_struct(values: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([values], ["at"])


def in_map(values: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays([0, 1], pa.array(["k"]), values)


def as_key(values: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays([0, 1], values, pa.array([1]))


def deep(values: pa.Array) -> pa.Array:
    return in_list(in_struct(in_map(in_list(values))))


NESTED: list[tuple[Callable[[pa.Array], pa.Array], Callable[[str], Any]]] = [
    (in_list, lambda text: [text]),
    (in_large_list, lambda text: [text]),
    (in_struct, lambda text: {"at": text}),
    (in_map, lambda text: {"k": text}),
    (as_key, lambda text: [{"key": text, "value": 1}]),
    (deep, lambda text: [{"at": {"k": [text]}}]),
]


@pytest.mark.parametrize(("inside", "spelled"), NESTED, ids=lambda part: getattr(part, "__name__", ""))
@pytest.mark.parametrize(("kind", "zone"), [(INSTANT, "Z"), (LOCAL, "")], ids=["instants", "local times"])
def test_a_time_inside_a_value_is_exact_or_refused(
    inside: Callable[[pa.Array], pa.Array], spelled: Callable[[str], Any], kind: pa.DataType, zone: str
) -> None:
    for micros in (*MICROS[:: len(MICROS) // 100], FIRST, LAST):
        year, text = time_of(micros)
        found = written(inside(pa.array([micros], pa.int64()).cast(kind)))
        whole = wanted(year, f"{text}{zone}")
        assert found == (whole if whole == "refused" else spelled(whole)), micros


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_no_unit_of_arrow_makes_a_wrong_time(unit: str) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    for value in (FIRST, LAST, 0, -1, 10**15, -(10**15), 10**18, 4 * 10**11):
        found = written(pa.array([value], pa.int64()).cast(pa.timestamp(unit, "UTC")))
        year, text = time_of(value // per_second * 10**6)
        assert found == "refused" if wanted(year, text) == "refused" else found[: len(text) - 7] == text[:-7], value


NOON = dt.datetime(2024, 7, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
VALUES: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "booleans": (pa.bool_(), [True, False], [True, False]),
    "long": (pa.int64(), [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
    "double": (pa.float64(), [0.1, 1e308, -0.0], [0.1, 1e308, -0.0]),
    "not a number": (pa.float64(), [math.nan, math.inf, -math.inf], ["NaN", "Infinity", "-Infinity"]),
    "float": (pa.float32(), [0.5, math.nan], [0.5, "NaN"]),
    "decimal": (
        pa.decimal128(38, 9),
        [Decimal("0.000000001"), Decimal("-12345678901234567890123456789.100000000")],
        ["0.000000001", "-12345678901234567890123456789.100000000"],
    ),
    "text": (pa.string(), ["", 'a\nb\u2028"\\', "\U0001f30a", "\x00"], ["", 'a\nb\u2028"\\', "\U0001f30a", "\x00"]),
    "binary": (pa.binary(), [b"", b"\xff\x00"], ["", "/wA="]),
    "fixed": (pa.binary(2), [b"\xff\x00"], ["/wA="]),
    "date": (pa.date32(), [dt.date(2024, 2, 29), dt.date(1, 1, 1)], ["2024-02-29", "0001-01-01"]),
    "instant": (INSTANT, [NOON], ["2024-07-01T12:00:00.123456Z"]),
    "local time": (pa.timestamp("us"), [NOON.replace(tzinfo=None)], ["2024-07-01T12:00:00.123456"]),
    "time of day": (pa.time64("us"), [dt.time(23, 59, 59, 1)], ["23:59:59.000001"]),
    "list": (pa.list_(pa.float64()), [[1.0, None, math.nan], []], [[1.0, None, "NaN"], []]),
    "list of instants": (pa.list_(INSTANT), [[NOON, None]], [["2024-07-01T12:00:00.123456Z", None]]),
    "struct": (
        pa.struct([("at", INSTANT), ("deep", pa.struct([("b", pa.binary())]))]),
        [{"at": NOON, "deep": {"b": b"\xff"}}, {"at": None, "deep": None}],
        [{"at": "2024-07-01T12:00:00.123456Z", "deep": {"b": "/w=="}}, {"at": None, "deep": None}],
    ),
    "map": (
        pa.map_(pa.string(), pa.decimal128(4, 1)), [[("a", Decimal("1.5")), ("b", None)]], [{"a": "1.5", "b": None}],
    ),
    "nothing": (pa.null(), [None], [None]),
}  # fmt: skip


def one(kind: pa.DataType, *values: Any) -> pa.Table:
    return pa.table({"v": pa.array(values, kind)})


def encoded(rows: pa.Table) -> bytes:
    return b"".join(LineEncoder(rows.schema).encode(batch) for batch in rows.to_batches())


@pytest.mark.parametrize("name", VALUES)
def test_each_value_has_one_spelling_in_json(name: str) -> None:
    kind, values, spelled = VALUES[name]
    found = [json.loads(line)["v"] for line in encoded(one(kind, *values, None)).decode().split("\n")[:-1]]
    assert [repr(value) for value in found] == [repr(value) for value in [*spelled, None]]


READ_BACK = {
    "decimal": "decimal(38,9)",
    "date": "date",
    "instant": "timestamptz",
    "local time": "timestamp",
    "time of day": "time",
    "not a number": "double",
    "list": "double[]",
    "map": "map(varchar, decimal(4,1))",
}


@pytest.mark.parametrize("name", READ_BACK)
def test_duckdb_reads_lines_back_as_the_values_they_were(tmp_path: Path, name: str) -> None:
    kind, values, _ = VALUES[name]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(encoded(one(kind, *values, None)))
    values_read = duckdb.read_json(str(path), columns={"v": READ_BACK[name]}).to_arrow_table()["v"].to_pylist()
    assert [told(value) for value in values_read] == [told(value) for value in [*values, None]]
