"""Partition values are Iceberg's, each row is in the one partition it belongs to, and paths hold anything safely."""

import math
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from lakesink.parquet.partitions import group
from lakesink.rows.plan import PartitionField as PlanField
from lakesink_protocol.errors import WriteError
from testkit.examples import examples
from testkit.tasks import Row, column, exactly, plan_for, rows_of, sources_of, spec_of, write, write_values
from tests.writer.random_tables import TRANSFORMS, VALUES

EDGES: list[tuple[str, PrimitiveType, pa.DataType, list[Any]]] = [
    ("bucket[16]", IntegerType(), pa.int32(), [0, -1, 34, -(2**31), 2**31 - 1, None]),
    ("bucket[2147483647]", LongType(), pa.int64(), [0, -1, 34, -(2**63), 2**63 - 1, None]),
    (
        "bucket[16]",
        DecimalType(38, 2),
        pa.decimal128(38, 2),
        [Decimal("-0.01"), Decimal("14.20"), Decimal(f"-{'9' * 36}.99")],
    ),
    ("bucket[16]", StringType(), pa.string(), ["", "iceberg", "😀", None]),
    ("bucket[16]", TimeType(), pa.time64("us"), [0, 81_068_000_000]),
    ("truncate[10]", IntegerType(), pa.int32(), [0, 9, 10, -1, -10, -11, None]),
    ("truncate[10]", LongType(), pa.int64(), [0, 9, -1, -(2**63) + 10, 2**63 - 1]),
    (
        "truncate[50]",
        DecimalType(9, 2),
        pa.decimal128(9, 2),
        [Decimal("10.65"), Decimal("-0.05"), Decimal("0.00"), None],
    ),
    ("truncate[2]", StringType(), pa.string(), ["", "a", "é😀b", "😀😀😀", None]),
    ("year", DateType(), pa.date32(), [0, -1, -365, -366, 364, 365, None]),
    ("month", DateType(), pa.date32(), [0, -1, -31, -32, 30, 31]),
    ("day", DateType(), pa.date32(), [0, -1, 2_900_000, -700_000]),
    ("year", TimestampType(), pa.timestamp("us"), [0, -1, -31_536_000_000_000, -31_536_000_000_001]),
    ("month", TimestamptzType(), pa.timestamp("us", "UTC"), [0, -1, -2_678_400_000_000, -2_678_400_000_001]),
    ("day", TimestampType(), pa.timestamp("us"), [0, -1, -86_400_000_000, -86_400_000_001, None]),
    ("hour", TimestamptzType(), pa.timestamp("us", "UTC"), [0, -1, -3_600_000_000, -3_600_000_001, None]),
]


@pytest.mark.parametrize(
    ("transform", "kind", "arrow", "values"), EDGES, ids=[f"{case[0]}-{case[1]}" for case in EDGES]
)
def test_partition_values_are_those_of_pyicebergs_own_transforms(
    transform: str, kind: PrimitiveType, arrow: pa.DataType, values: list[Any]
) -> None:
    schema, spec = column(kind), spec_of(transform)
    for value in values:
        [part] = group(pa.table({"c": pa.array([value], arrow)}), sources_of(schema, spec)).groups
        assert part.partition == (single_value(transform, kind, value),)


LAST_MICROS, LAST_DAYS = 2**63 - 1, 2**31 - 1


@pytest.mark.parametrize(
    ("transform", "arrow", "value", "period"),
    [
        ("year", pa.timestamp("us"), LAST_MICROS, 294_247 - 1970),
        ("month", pa.timestamp("us"), LAST_MICROS, (294_247 - 1970) * 12),
        ("year", pa.timestamp("us", "UTC"), -LAST_MICROS - 1, -290_308 - 1970),
        ("month", pa.timestamp("us", "UTC"), -LAST_MICROS - 1, (-290_308 - 1970) * 12 + 11),
        ("year", pa.date32(), LAST_DAYS, 5_881_580 - 1970),
        ("month", pa.date32(), LAST_DAYS, (5_881_580 - 1970) * 12 + 6),
        ("year", pa.date32(), -LAST_DAYS - 1, -5_877_641 - 1970),
        ("month", pa.date32(), -LAST_DAYS - 1, (-5_877_641 - 1970) * 12 + 5),
    ],
)
def test_the_last_moments_of_a_type_have_a_year_and_a_month(
    transform: str, arrow: pa.DataType, value: int, period: int
) -> None:
    """As Java's calendar has them. A reader passes over a partition NULL when it looks for what is far off."""
    stored = pa.int32() if arrow == pa.date32() else pa.int64()
    kind = DateType() if arrow == pa.date32() else TimestamptzType() if arrow.tz else TimestampType()
    rows = pa.table({"c": pa.array([value, None, 0], stored).view(arrow)})
    found = [part.partition for part in group(rows, sources_of(column(kind), spec_of(transform))).groups]
    assert found == [(struct.pack("<i", period),), (None,), (struct.pack("<i", 0),)]


@examples(80)
@given(data=st.data())
def test_any_value_of_any_type_gets_pyicebergs_partition_value(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([*PLAIN, *(kind for kind in PLAIN if kind in PERIODIC)]))
    transform = data.draw(st.sampled_from([name for name in TRANSFORMS if parse_transform(name).can_transform(kind)]))
    value = data.draw(VALUES[type(kind)](kind))
    [part] = group(pa.table({"c": pa.array([value], PLAIN[kind])}), sources_of(column(kind), spec_of(transform))).groups
    assert part.partition == (single_value(transform, kind, value),)


def single_value(transform: str, kind: PrimitiveType, value: Any) -> bytes | None:
    """What PyIceberg's own transform gives, in PyIceberg's own binary form."""
    expected = parse_transform(transform).transform(kind)(value)
    result = parse_transform(transform).result_type(kind)
    assert isinstance(result, PrimitiveType)
    return None if expected is None else to_bytes(result, expected)


PLAIN: dict[PrimitiveType, pa.DataType] = {
    LongType(): pa.int64(),
    DecimalType(9, 2): pa.decimal128(9, 2),
    DecimalType(38, 10): pa.decimal128(38, 10),
    DateType(): pa.date32(),
    TimestampType(): pa.timestamp("us"),
    TimestamptzType(): pa.timestamp("us", "UTC"),
    StringType(): pa.string(),
}
PERIODIC = (DateType(), TimestampType(), TimestamptzType())


@pytest.mark.parametrize(
    ("kind", "arrow", "code"), [(FloatType(), pa.float32(), "f"), (DoubleType(), pa.float64(), "d")]
)
def test_floats_are_told_apart_by_their_bits_except_that_every_nan_is_one(
    kind: IcebergType, arrow: pa.DataType, code: str, tmp_path: Path
) -> None:
    other_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
    values = [0.0, -0.0, math.nan, 1.5, other_nan, None, -0.0, math.inf, 0.0, -math.nan, None]
    receipt = write_values(values, arrow, column(kind), spec_of("identity"), tmp_path)
    found = {file.partition[0]: [exactly(row["c"]) for row in rows_of([file])] for file in receipt.files}
    assert found == {
        struct.pack(f"<{code}", 0.0): [exactly(0.0)] * 2,
        struct.pack(f"<{code}", -0.0): [exactly(-0.0)] * 2,
        struct.pack(f"<{code}", math.nan): ["nan"] * 3,
        struct.pack(f"<{code}", 1.5): [exactly(1.5)],
        struct.pack(f"<{code}", math.inf): [exactly(math.inf)],
        None: [None] * 2,
    }


FIELDS: list[tuple[IcebergType, pa.DataType, list[Any]]] = [
    (LongType(), pa.int64(), [*range(6), None]),
    (StringType(), pa.string(), ["", "a", "b", "null", None]),
    (DoubleType(), pa.float64(), [0.0, -0.0, math.nan, 1.5, None]),
    (FloatType(), pa.float32(), [0.0, -0.0, math.nan, None]),
    (DecimalType(9, 2), pa.decimal128(9, 2), [Decimal("0.00"), Decimal("-0.01"), None]),
    (DateType(), pa.date32(), [0, -1]),
    (LongType(), pa.int64(), [None]),
]


@examples(25)
@given(data=st.data())
def test_rows_are_in_one_group_exactly_if_they_agree_in_every_partition_field(data: st.DataObject) -> None:
    """The reference is a dictionary by the values; fields have unequal numbers of values, in any order."""
    fields = data.draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=4))
    rows = data.draw(st.lists(st.tuples(*(st.sampled_from(values) for _, _, values in fields)), min_size=1))
    schema = Schema(*(NestedField(at, f"c{at}", kind) for at, (kind, _, _) in enumerate(fields, 1)))
    columns = {f"c{at}": pa.array([row[at - 1] for row in rows], arrow) for at, (_, arrow, _) in enumerate(fields, 1)}
    table = pa.table({**columns, "row": pa.array(range(len(rows)))})
    spec = spec_of(*["identity"] * len(fields), source_ids=range(1, len(fields) + 1))
    grouping = group(table, sources_of(schema, spec))
    expected: dict[Any, list[int]] = {}
    for number, row in enumerate(rows):
        expected.setdefault(tuple(map(repr, row)), []).append(number)
    found = {partition: part["row"].to_pylist() for partition, part in grouping.split(grouping.groups)}
    assert len(found) == len(grouping.groups)
    assert sorted(found.values()) == sorted(expected.values())


def test_several_fields_make_one_partition_for_each_combination_and_rows_keep_their_order(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", StringType()), NestedField(3, "n", LongType()))
    spec = spec_of("truncate[10]", "identity", "void", source_ids=(1, 2, 3))
    rows: list[Row] = [{"a": n % 47, "b": "tuvxyz"[n % 6] if n % 7 else None, "n": n} for n in range(500)]
    receipt = write(plan_for(schema, tmp_path, spec), [pa.RecordBatch.from_pylist(rows)])
    found = {file.partition: rows_of([file]) for file in receipt.files}
    assert len(found) == len(receipt.files)
    for (a, b, void), part in found.items():
        assert void is None
        key = (int.from_bytes(a or b"", "little"), None if b is None else b.decode())
        assert part == [row for row in rows if (row["a"] // 10 * 10, row["b"]) == key]
    assert sum(len(part) for part in found.values()) == len(rows)


def test_an_unknown_transform_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    plan = plan_for(column(LongType()), tmp_path / "data", partition_fields=(PlanField(1, 1000, "p", "zorder[3]"),))
    with pytest.raises(WriteError, match="zorder"):
        write(plan, [pa.RecordBatch.from_pydict({"c": [1]})])
    assert list(tmp_path.iterdir()) == []
