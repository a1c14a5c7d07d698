"""Bounds hold for every value, are as the metrics modes ask, and are left out where they are not sure."""

import math
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from lakesink.parquet.single_value import encode_value
from lakesink.parquet.statistics import MetricsMode, Range, bounds, parse_mode
from lakesink.rows.plan import ParquetOptions
from lakesink.rows.schema import Primitive
from lakesink_protocol.change import ContentFile
from testkit.commits import add
from testkit.tasks import column, new_table, plan_for, write
from tests.writer.random_tables import BINARY, TEXT

STRING, BYTES = Primitive("string"), Primitive("binary")


def one_file(kind: IcebergType, values: pa.Array, folder: Path, **overrides: Any) -> ContentFile:
    batch = pa.RecordBatch.from_arrays([values], names=["c"])
    [file] = write(plan_for(column(kind), folder, **overrides), [batch]).files
    return file


def bounds_of(file: ContentFile) -> tuple[bytes | None, bytes | None]:
    return file.lower_bounds.get(1), file.upper_bounds.get(1)


@given(value=TEXT, length=st.integers(1, 20))
@example(value="\ud7ff\ud7ff\ud7ff", length=2)
@example(value="a\U0010ffff\U0010ffff", length=2)
@example(value="\U0010ffff" * 3, length=2)
def test_shortened_text_bounds_hold_and_are_text(value: str, length: int) -> None:
    lower, upper = bounds(STRING, Range(value.encode(), value.encode()), length)
    assert lower is not None
    assert lower.decode() == value[:length]
    if upper is None:
        assert set(value[:length]) == {"\U0010ffff"}
    else:
        assert len(upper.decode()) <= length
        assert upper.decode() >= value
        assert upper >= value.encode()


@given(value=BINARY, length=st.integers(1, 20))
@example(value=b"\xff\xff\xff", length=2)
@example(value=b"a\xff\xff", length=2)
def test_shortened_byte_bounds_hold(value: bytes, length: int) -> None:
    lower, upper = bounds(BYTES, Range(value, value), length)
    assert lower == value[:length]
    assert (upper is None) == (len(value) > length and set(value[:length]) == {0xFF})
    assert upper is None or (len(upper) <= length and upper >= value)


@pytest.mark.parametrize(
    ("value", "length", "upper"),
    [("abcd", 3, b"abd"), ("ab\U0010ffffx", 3, b"ac"), ("a\ud7ffz", 2, b"a\xee\x80\x80"), ("abc", 3, b"abc")],
)
def test_an_upper_text_bound_is_the_shortest_that_is_above(value: str, length: int, upper: bytes) -> None:
    assert bounds(STRING, Range(value.encode(), value.encode()), length)[1] == upper


def test_text_that_is_no_utf_8_has_no_bounds() -> None:
    assert bounds(STRING, Range(b"\xff\xfe", b"\xff\xfe"), None) == (None, None)


@given(unscaled=st.integers(-(10**38) + 1, 10**38 - 1))
@example(unscaled=-128)
@example(unscaled=127)
@example(unscaled=128)
@example(unscaled=0)
def test_decimals_are_as_short_as_pyiceberg_writes_them(unscaled: int) -> None:
    assert encode_value(Primitive("decimal(38, 0)"), unscaled) == to_bytes(DecimalType(38, 0), Decimal(unscaled))


@pytest.mark.parametrize("kind", ["binary", "fixed[6]"])
def test_an_upper_byte_bound_is_the_shortest_that_is_above(kind: str) -> None:
    value = b"ab\xffxyz"
    assert bounds(Primitive(kind), Range(value, value), 3) == (b"ab\xff", b"ac")
    assert bounds(Primitive(kind), Range(value, value), 6) == (value, value)


def test_a_number_is_never_shortened() -> None:
    number = (2**40).to_bytes(8, "little")
    assert bounds(Primitive("long"), Range(2**40, 2**40), 4) == (number, number)


SPELLED: dict[str, MetricsMode] = {
    "none": MetricsMode(counts=False, bounds=False),
    "counts": MetricsMode(counts=True, bounds=False),
    "full": MetricsMode(counts=True, bounds=True),
    "truncate(4)": MetricsMode(counts=True, bounds=True, truncate_to=4),
    "truncate(1)": MetricsMode(counts=True, bounds=True, truncate_to=1),
}


@pytest.mark.parametrize("spelling", SPELLED)
def test_each_metrics_mode_of_a_plan_is_read(spelling: str) -> None:
    assert parse_mode(spelling) == SPELLED[spelling]


MODES: list[tuple[str | None, IcebergType, pa.Array, Any]] = [
    (None, StringType(), pa.array(["x" * 20]), (b"x" * 16, b"x" * 15 + b"y")),
    ("truncate(4)", StringType(), pa.array(["abcdef"]), (b"abcd", b"abce")),
    ("truncate(4)", BinaryType(), pa.array([b"abcdef"]), (b"abcd", b"abce")),
    ("truncate(4)", FixedType(6), pa.array([b"abcdef"]), (b"abcd", b"abce")),
    ("truncate(4)", LongType(), pa.array([2**40]), ((2**40).to_bytes(8, "little"),) * 2),
    ("full", StringType(), pa.array(["x" * 200]), (b"x" * 200,) * 2),
    ("counts", StringType(), pa.array(["abc"]), (None, None)),
    ("none", StringType(), pa.array(["abc"]), (None, None)),
]


@pytest.mark.parametrize(("mode", "kind", "values", "expected"), MODES)
def test_metrics_modes_decide_what_is_recorded(
    mode: str | None, kind: IcebergType, values: pa.Array, expected: Any, tmp_path: Path
) -> None:
    modes: Mapping[int, str] = {} if mode is None else {1: mode}
    file = one_file(kind, values, tmp_path, metrics_modes=modes)
    assert bounds_of(file) == expected
    assert file.column_sizes[1] > 0
    assert (1 in file.value_counts, 1 in file.null_value_counts) == (mode != "none",) * 2


@pytest.mark.parametrize("mode", ["counts", "none"])
def test_nans_are_counted_only_where_counts_are_asked_for(mode: str, tmp_path: Path) -> None:
    file = one_file(DoubleType(), pa.array([math.nan, 1.0, None]), tmp_path, metrics_modes={1: mode})
    assert file.nan_value_counts == ({1: 1} if mode == "counts" else {})


def test_a_value_too_long_for_parquets_statistics_leaves_the_column_without_bounds(tmp_path: Path) -> None:
    small_groups = ParquetOptions(row_group_size_bytes=8_000)
    values = pa.array(["a", "b" * 9_000, "c"])
    file = one_file(StringType(), values, tmp_path, parquet=small_groups)
    assert bounds_of(file) == (None, None)
    assert file.null_value_counts == {1: 0}


def test_a_row_group_of_nothing_but_nan_does_not_cost_the_file_its_bounds(tmp_path: Path) -> None:
    values = pa.array([math.nan] * 1_000 + [2.5] * 1_000)
    file = one_file(DoubleType(), values, tmp_path, parquet=ParquetOptions(row_group_size_bytes=4_000))
    assert len(file.split_offsets) > 1
    assert bounds_of(file) == (to_bytes(DoubleType(), 2.5),) * 2
    assert file.nan_value_counts == {1: 1_000}


def test_a_row_group_of_nothing_but_null_does_not_cost_the_file_its_bounds(tmp_path: Path) -> None:
    values = pa.array([None] * 1_000 + [7] * 1_000, pa.int64())
    file = one_file(LongType(), values, tmp_path, parquet=ParquetOptions(row_group_size_bytes=4_000))
    assert len(file.split_offsets) > 1
    assert bounds_of(file) == (to_bytes(LongType(), 7),) * 2


@pytest.mark.parametrize("zeros", [[0.0], [-0.0], [0.0, -0.0]])
def test_a_zero_bound_includes_both_zeros(zeros: list[float], tmp_path: Path) -> None:
    file = one_file(DoubleType(), pa.array(zeros), tmp_path)
    assert bounds_of(file) == (to_bytes(DoubleType(), -0.0), to_bytes(DoubleType(), 0.0))


@pytest.mark.parametrize("low", [0.0, -0.0])
@pytest.mark.parametrize("high", [0.0, -0.0])
def test_a_zero_bound_takes_the_wider_side_whatever_parquet_says(low: float, high: float) -> None:
    expected = (to_bytes(DoubleType(), -0.0), to_bytes(DoubleType(), 0.0))
    assert bounds(Primitive("double"), Range(low, high), None) == expected


def test_not_a_number_is_no_bound() -> None:
    assert bounds(Primitive("float"), Range(math.nan, 1.0), None) == (None, None)
    assert bounds(Primitive("float"), Range(1.0, math.nan), None) == (None, None)


def test_columns_in_lists_have_counts_and_no_bounds_and_those_in_structs_have_both(tmp_path: Path) -> None:
    nested = StructType(
        NestedField(11, "f", DoubleType()), NestedField(12, "l", ListType(13, DoubleType(), element_required=False))
    )
    arrow = pa.struct([("f", pa.float64()), ("l", pa.list_(pa.float64()))])
    rows = [{"f": math.nan, "l": [1.0, math.nan]}, {"f": 2.0, "l": []}, None]
    file = one_file(nested, pa.array(rows, arrow), tmp_path)
    assert file.lower_bounds == {11: to_bytes(DoubleType(), 2.0)}
    assert file.nan_value_counts == {11: 1}
    assert (file.value_counts[11], file.null_value_counts[11]) == (3, 1)
    assert file.value_counts[13] == 4


PARTS = [(0, "a"), (10, "b"), (20, "c")]
PLANNED = {
    "n < 0": 0,
    "n > 29": 0,
    "s = 'd'": 0,
    "n < 1": 1,
    "n > 28": 1,
    "n = 10": 1,
    "n = 19": 1,
    f"s = '{'b' * 30}'": 1,
    "n is null": 0,
    "n <= 10": 2,
}


def test_files_beyond_a_predicate_are_not_read_and_those_at_it_are(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "s", StringType()))
    with new_table(tmp_path, schema) as table:
        plan = plan_for(table.schema(), f"{table.location()}/data")
        batches = [pa.RecordBatch.from_pydict({"n": [low, low + 9], "s": [letter * 30] * 2}) for low, letter in PARTS]
        add(table, [write(plan, [batch]).files[0] for batch in batches])
        assert {predicate: len(list(table.scan(predicate).plan_files())) for predicate in PLANNED} == PLANNED


def test_the_longest_bound_asked_for_is_whole() -> None:
    assert bounds(BYTES, Range(b"\xff" * 40, b"\xff" * 40), sys.maxsize) == (b"\xff" * 40, b"\xff" * 40)
