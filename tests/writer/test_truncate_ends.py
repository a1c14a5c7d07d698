"""A value whose partition's value does not fit its type is refused by column; all others have the very partition."""

from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import DecimalType, IcebergType, IntegerType, LongType, TimestampType

from lakesink.parquet.partitions import check_partition_values
from lakesink.parquet.single_value import raw_values
from lakesink.parquet.transforms import parse_transform
from lakesink.rows.schema import Primitive
from lakesink_protocol.errors import WriteError
from testkit.tasks import column, sources_of, spec_of, write_values

EXACT = Context(prec=80)


@pytest.mark.parametrize(
    ("value", "arrow", "kind", "transform"),
    [
        (-(2**63), pa.int64(), LongType(), "truncate[10]"),
        (-(2**31), pa.int32(), IntegerType(), "truncate[10]"),
        (Decimal("-9999999.99"), pa.decimal128(9, 2), DecimalType(9, 2), "truncate[50]"),
        (Decimal(1 - 10**38), pa.decimal128(38, 0), DecimalType(38, 0), "truncate[50]"),
        (2**63 - 1, pa.timestamp("us"), TimestampType(), "hour"),
        (-(2**63), pa.timestamp("us"), TimestampType(), "hour"),
    ],
    ids=str,
)
def test_a_value_too_near_the_end_of_its_type_is_refused_by_its_column(
    value: Any, arrow: pa.DataType, kind: IcebergType, transform: str, tmp_path: Path
) -> None:
    with pytest.raises(
        WriteError, match=r"in column 'c' \(.*\) is too large or too small for the partition field 'p0'"
    ) as refused:
        write_values([value], arrow, column(kind), spec_of(transform), tmp_path)
    assert refused.value.code == "LAKESINK_PARTITION_VALUE_UNFIT"
    assert f"The result of {transform} does not fit its type." in str(refused.value)
    assert not list(tmp_path.rglob("*.parquet"))
    rows = pa.RecordBatch.from_arrays([pa.array([value], arrow)], names=["c"])
    with pytest.raises(WriteError, match="PARTITION_VALUE_UNFIT"):
        check_partition_values(rows, sources_of(column(kind), spec_of(transform)))


@pytest.mark.parametrize("transform", ["truncate[2147483648]", "truncate[0]", "bucket[2147483648]", "bucket[0]"])
def test_a_width_that_no_reader_takes_is_refused_by_name(transform: str) -> None:
    with pytest.raises(WriteError, match="width is not from 1 to 2147483647") as refused:
        parse_transform(transform, Primitive("int"))
    assert refused.value.code == "LAKESINK_SCHEMA_MISMATCH"


@given(st.integers(1, 38), st.data())
def test_a_truncated_decimal_is_exact_or_refused(precision: int, data: st.DataObject) -> None:
    ends = st.sampled_from([1 - 10**precision, 10**precision - 1])
    unscaled = data.draw(ends | st.integers(1 - 10**precision, 10**precision - 1))
    width = data.draw(st.integers(1, 2**31 - 1) | st.integers(1, 100))
    value = pa.array([Decimal(unscaled).scaleb(-(precision // 2), EXACT)], pa.decimal128(precision, precision // 2))
    agrees(
        f"truncate[{width}]",
        f"decimal({precision}, {precision // 2})",
        value,
        unscaled - unscaled % width,
        10**precision,
    )


@given(st.sampled_from([31, 63]), st.data())
def test_a_truncated_whole_number_is_exact_or_refused(bits: int, data: st.DataObject) -> None:
    number = data.draw(st.sampled_from([-(2**bits), 2**bits - 1]) | st.integers(-(2**bits), 2**bits - 1))
    width = data.draw(st.integers(1, 2**31 - 1) | st.integers(1, 100))
    kind, arrow = ("int", pa.int32()) if bits == 31 else ("long", pa.int64())
    agrees(f"truncate[{width}]", kind, pa.array([number], arrow), number - number % width, 2**bits + 1)


@given(st.integers(-(2**63), 2**63 - 1))
def test_an_hour_is_exact_or_refused(micros: int) -> None:
    agrees("hour", "timestamp", pa.array([micros]).view(pa.timestamp("us")), micros // 3_600_000_000, 2**31 + 1)


def agrees(transform: str, kind: str, values: pa.Array, expected: int, limit: int) -> None:
    """The transform gives the expected value, or refuses one that is as far from 0 as the limit."""
    try:
        [found] = raw_values(parse_transform(transform, Primitive(kind)).apply(values))
    except pa.ArrowInvalid:
        assert abs(expected) >= limit or expected == limit - 1
    else:
        assert found == expected
