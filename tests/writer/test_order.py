"""Rows of a file are in the table's sort order, by a comparison of single values that knows nothing of Arrow."""

import math
import random
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cmp_to_key
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakesink.parquet.order import indices, sort_keys
from lakesink.rows.plan import SortField
from lakesink.rows.schema import arrow_schema, parse_schema
from testkit.examples import seeds
from testkit.tasks import footer, in_batches, plan_for, rows_of, spec_of, write

SPECIAL = (math.nan, -0.0, 0.0, math.inf, -math.inf)


def _rank(value: Any) -> Any:
    """A value as one that Python compares in the specification's order, of values of one type."""
    if isinstance(value, float):
        bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
        return 2**63 if math.isnan(value) else bits if bits >= 0 else -(2**63) - bits - 1
    return value.encode() if isinstance(value, str) else value


def _compared(fields: Sequence[SortField], one: Sequence[Any], other: Sequence[Any]) -> int:
    for field, left, right in zip(fields, one, other, strict=True):
        if (left is None) != (right is None):
            return -1 if (left is None) == field.nulls_first else 1
        if left is not None and _rank(left) != _rank(right):
            return -1 if (_rank(left) < _rank(right)) != field.is_descending else 1
    return 0


def by(source_id: int = 1, transform: str = "identity", *, descending: bool = False, last: bool = False) -> SortField:
    return SortField(source_id, transform, descending, not last)


def reference(fields: Sequence[SortField], keys: Sequence[tuple[Any, ...]]) -> list[int]:
    """The positions of these keys in order; equal ones stay as they are."""

    def compare(left: int, right: int) -> int:
        return _compared(fields, keys[left], keys[right])

    return sorted(range(len(keys)), key=cmp_to_key(compare))


def _found(table: pa.Table, schema: Schema, fields: Sequence[SortField]) -> list[int]:
    order = indices(table, sort_keys(parse_schema(schema.model_dump_json()), tuple(fields)))
    return list(range(table.num_rows)) if order is None else list(order.to_pylist())


TRANSFORMS = ("identity", "bucket[7]", "truncate[3]", "year", "month", "day", "hour")
MICROS = 86_400_000_000 * 10_000
POOLS: list[tuple[IcebergType, Callable[[random.Random], Any]]] = [
    (BooleanType(), lambda chance: chance.random() < 0.5),
    (IntegerType(), lambda chance: chance.choice([-(2**31) + 3, 2**31 - 1, chance.randrange(-20, 20)])),
    (LongType(), lambda chance: chance.choice([-(2**63) + 3, 2**63 - 1, chance.randrange(-20, 20)])),
    (FloatType(), lambda chance: chance.choice([*SPECIAL, chance.randrange(-80, 80) / 8])),
    (DoubleType(), lambda chance: chance.choice([*SPECIAL, 5e-324, -5e-324, chance.uniform(-1, 1)])),
    (DecimalType(9, 2), lambda chance: Decimal(chance.randrange(-900, 900)).scaleb(-2)),
    (DecimalType(38, 0), lambda chance: Decimal(chance.choice([-(10**37), 10**37, chance.randrange(-9, 9)]))),
    (DateType(), lambda chance: chance.randrange(-9_000, 9_000)),
    (TimeType(), lambda chance: chance.randrange(86_400_000_000)),
    (TimestampType(), lambda chance: chance.randrange(-MICROS, MICROS)),
    (TimestamptzType(), lambda chance: chance.randrange(-MICROS, MICROS)),
    (StringType(), lambda chance: "".join(chance.choices("aZ\0\ud7ff\uffff\U0001f600", k=chance.randrange(4)))),
    (BinaryType(), lambda chance: chance.randbytes(chance.randrange(4))),
    (FixedType(3), lambda chance: chance.randbytes(3)),
    (UUIDType(), lambda chance: chance.choice(b"\x00\x7f\x80\xff").to_bytes() + chance.randbytes(15)),
]
"""Values of each type, from which few are drawn, so that many rows are equal."""


def _table(schema: Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """The rows, in chunks of seven."""
    kinds = arrow_schema(parse_schema(schema.model_dump_json()))
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(kinds)]
    whole = pa.Table.from_arrays(columns, schema=kinds)
    return pa.Table.from_batches(whole.to_batches(max_chunksize=7), kinds)


@pytest.mark.parametrize("seed", seeds(20))
def test_rows_are_in_the_specifications_order(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(20):
        chosen = chance.choices(POOLS, k=chance.choice([1, 1, 2, 3]))
        schema = Schema(*(NestedField(number, f"c{number}", kind) for number, (kind, _) in enumerate(chosen, 1)))
        fields, columns, keys = [], [], []
        for number, (kind, value) in enumerate(chosen, 1):
            possible = [name for name in TRANSFORMS if parse_transform(name).can_transform(kind)]
            fields.append(SortField(number, chance.choice(possible), chance.random() < 0.5, chance.random() < 0.5))
            few = [value(chance) for _ in range(6)] + [None] * chance.randrange(2)
            columns.append(chance.choices(few, k=40))
            transform = parse_transform(fields[-1].transform).transform(kind)
            keys.append([transform(one) for one in columns[-1]])
        rows = _table(schema, list(zip(*columns, strict=True)))
        assert _found(rows, schema, fields) == reference(fields, list(zip(*keys, strict=True)))


def test_numbers_texts_and_bytes_have_icebergs_order() -> None:
    cases: list[tuple[IcebergType, pa.DataType, list[Any]]] = [
        (DoubleType(), pa.float64(), [-math.inf, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, math.inf, math.nan]),
        (StringType(), pa.string(), ["", "Z", "a", "\ud7ff", "\uffff", "\U0001f600"]),  # not by UTF-16
        (BinaryType(), pa.binary(), [b"", b"\x00", b"\x7f", b"\x80", b"\xff"]),
        (FixedType(2), pa.binary(2), [b"\x00\xff", b"\x7f\x00", b"\x80\x00"]),
        (UUIDType(), pa.binary(16), [b"\x00" * 16, b"\x7f" * 16, b"\x80" * 16]),  # not as two signed numbers
        (DecimalType(38, 2), pa.decimal128(38, 2), [-(10**30), -1, 0, 1, 10**30]),
    ]
    for kind, arrow, values in cases:
        schema, given_values = Schema(NestedField(1, "c", kind)), [*values[::-1], None]
        table = pa.table({"c": pa.array(given_values, arrow)})
        last = len(values)
        expected = {
            by(): [last, *range(last)[::-1]],
            by(last=True): [*range(last)[::-1], last],
            by(descending=True): [last, *range(last)],
            by(descending=True, last=True): [*range(last), last],
        }
        for field, order in expected.items():
            assert _found(table, schema, [field]) == order, (kind, field)


def test_a_nan_of_either_sign_is_the_greatest_and_equal_to_the_others() -> None:
    nans = struct.pack("<4Q", 0xFFF8000000000001, 0x7FF8000000000000, 0x3FF0000000000000, 0x7FF0000000000001)
    values = pa.Array.from_buffers(pa.float64(), 4, [None, pa.py_buffer(nans)])
    schema = Schema(NestedField(1, "c", DoubleType()))
    assert _found(pa.table({"c": values}), schema, [by()]) == [2, 0, 1, 3]


def test_no_row_is_refused_for_its_place_in_a_file() -> None:
    """Beyond their types, results wrap around as they do in Java."""
    for kind, arrow, transform, values in [
        (IntegerType(), pa.int32(), "truncate[10]", [-(2**31), 0]),
        (LongType(), pa.int64(), "truncate[10]", [-(2**63), 0]),
        (DecimalType(2, 0), pa.decimal128(2, 0), "truncate[10]", [0, -99]),
        (TimestampType(), pa.timestamp("us"), "hour", [2**63 - 1, -(2**63), 0]),
    ]:
        table = pa.table({"c": pa.array(values, arrow)})
        found = _found(table, Schema(NestedField(1, "c", kind)), [by(1, transform)])
        assert sorted(found) == list(range(len(values)))


def test_a_field_of_a_struct_is_null_where_the_struct_is() -> None:
    inner = StructType(NestedField(2, "x", LongType()))
    table = pa.table({"c": pa.array([{"x": 2}, None, {"x": None}, {"x": 1}], pa.struct([("x", pa.int64())]))})
    schema = Schema(NestedField(1, "c", inner))
    assert _found(table, schema, [by(2)]) == [1, 2, 3, 0]


def test_rows_in_order_are_not_copied() -> None:
    schema = Schema(NestedField(1, "c", LongType()))
    keys = sort_keys(parse_schema(schema.model_dump_json()), (by(),))
    assert indices(pa.table({"c": [None, 1, 1, 2]}), keys) is None
    assert indices(pa.table({"c": pa.array([], pa.int64())}), keys) is None
    assert indices(pa.table({"c": [2, 1]}), ()) is None


EVENTS = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
BY_NAME = (by(2, "truncate[1]", descending=True, last=True), by())


@pytest.mark.parametrize("parts", [(), ("bucket[3]",)])
@pytest.mark.parametrize("buffered", [2**27, 4_000], ids=["at once", "in parts"])
def test_each_file_of_a_task_is_in_order_as_a_whole(tmp_path: Path, parts: tuple[str, ...], buffered: int) -> None:
    rows = pa.table(
        {"id": [(number * 7919) % 1000 for number in range(1000)], "name": ["abcd"[n % 4] * 3 for n in range(1000)]}
    )
    plan = plan_for(EVENTS, tmp_path, spec_of(*parts), sort_order=BY_NAME, sort_order_id=3, buffer_bytes=buffered)
    files = write(plan, in_batches(rows, 50)).files
    assert (len(files) > 3) == (buffered == 4_000)
    for file in files:
        keys = [(-ord(row["name"][0]), row["id"]) for row in rows_of([file])]
        assert keys == sorted(keys)
        assert file.sort_order_id == 3
    assert sorted(row["id"] for row in rows_of(files)) == list(range(1000))


def test_a_file_at_the_target_size_ends_and_the_next_goes_on_in_order(tmp_path: Path) -> None:
    rows = pa.table({"id": list(range(50_000))[::-1], "name": [str(hash((n, "x"))) for n in range(50_000)]})
    order = (by(),)
    files = write(
        plan_for(EVENTS, tmp_path, sort_order=order, sort_order_id=1, target_file_size_bytes=200_000),
        [rows.combine_chunks().to_batches()[0]],
    ).files
    assert len(files) > 2
    assert [row["id"] for row in rows_of(files)] == list(range(50_000))
    assert {file.sort_order_id for file in files} == {1}


def test_without_an_order_rows_stay_as_they_come_and_files_state_none(tmp_path: Path) -> None:
    rows = pa.table({"id": [3, 1, 2], "name": ["c", "a", "b"]})
    [file] = write(plan_for(EVENTS, tmp_path), in_batches(rows, 1)).files
    assert [row["id"] for row in rows_of([file])] == [3, 1, 2]
    assert file.sort_order_id == 0
    assert footer(file).num_row_groups == 1
