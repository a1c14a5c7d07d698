"""No data file with a key of the batch is left out, and files that cannot have one are."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, IcebergType, LongType, NestedField, StringType, UUIDType

from lakesink.keys.newest import CHANGE
from lakesink.keys.prune import KeyRanges, key_partitions, key_ranges
from lakesink.parquet.single_value import encode_value
from lakesink.rows.plan import PartitionField
from testkit.examples import examples
from testkit.tasks import column, plan_for, spec_of, write
from tests.locate.builders import columns_of
from tests.locate.key_values import RAW, array_of, values


def ranges_of(kind: IcebergType, raw: list[object]) -> KeyRanges:
    columns = columns_of([kind])
    return key_ranges(pa.table([array_of(columns.keys[0], raw)], ["k1"]), columns)


@pytest.mark.parametrize("kind", RAW, ids=str)
@examples(8)
@given(data=st.data())
def test_a_file_with_one_of_the_keys_is_never_left_out(
    tmp_path_factory: pytest.TempPathFactory, kind: IcebergType, data: st.DataObject
) -> None:
    stored = data.draw(st.lists(values(kind), min_size=1, max_size=4))
    keys = [*data.draw(st.lists(values(kind), max_size=4)), data.draw(st.sampled_from(stored))]
    batch = pa.RecordBatch.from_arrays([array_of(columns_of([kind]).keys[0], stored)], names=["c"])
    folder = tmp_path_factory.mktemp("files")
    for mode in ("truncate(2)", "full", "counts"):
        [file] = write(plan_for(column(kind), folder, metrics_modes={1: mode}), [batch]).files
        assert ranges_of(kind, keys).may_be_in(file.lower_bounds, file.upper_bounds)


@pytest.mark.parametrize(
    ("kind", "raw"), [(k, r) for k, r in RAW.items() if k not in (BooleanType(), UUIDType())], ids=str
)
def test_a_file_is_left_out_if_its_bounds_exclude_every_key(kind: IcebergType, raw: list[object]) -> None:
    primitive = columns_of([kind]).keys[0].kind
    ordered = sorted(raw)  # type: ignore[type-var] # of one type
    if kind == StringType():
        ordered = sorted(raw, key=lambda text: str(text).encode())
    bound = [encode_value(primitive, value.encode() if isinstance(value, str) else value) for value in ordered]  # type: ignore[arg-type]
    first, middle, last = ordered[0], ordered[1], ordered[-1]
    lower, upper = {1: bound[1]}, {1: bound[1]}
    assert not ranges_of(kind, [first, last]).may_be_in(lower, upper)
    assert ranges_of(kind, [first, middle, last]).may_be_in(lower, upper)
    assert ranges_of(kind, [first, last]).may_be_in({}, upper)
    assert ranges_of(kind, [first, last]).may_be_in(upper, {})
    assert ranges_of(kind, [middle]).may_be_in({1: bound[-1]}, {1: bound[0]})  # such bounds are wrong


def test_each_gap_between_many_keys_is_seen() -> None:
    chance = random.Random(1)
    keys = sorted(chance.sample(range(10**6), 5_000))
    ranges, there = ranges_of(LongType(), list(keys)), set(keys)
    for _ in range(3_000):
        low = chance.randrange(-10, 10**6)
        high = low + chance.choice([0, 1, 50, 500])
        bounds = ({1: low.to_bytes(8, "little", signed=True)}, {1: high.to_bytes(8, "little", signed=True)})
        assert ranges.may_be_in(*bounds) == any(key in there for key in range(low, high + 1))


def test_bounds_of_a_column_that_was_an_int_are_compared_as_longs() -> None:
    bounds = {1: (-5).to_bytes(4, "little", signed=True)}, {1: (7).to_bytes(4, "little", signed=True)}
    assert ranges_of(LongType(), [7]).may_be_in(*bounds)
    assert not ranges_of(LongType(), [8, 2**32]).may_be_in(*bounds)


@pytest.mark.parametrize("transform", ["identity", "bucket[4]", "truncate[3]"])
@pytest.mark.parametrize("kind", [LongType(), StringType()], ids=str)
def test_the_partitions_of_keys_are_those_of_written_files(tmp_path: Path, transform: str, kind: IcebergType) -> None:
    columns, raw, spec = columns_of([kind]), list(RAW[kind])[2:], spec_of(transform)
    batch = pa.RecordBatch.from_arrays([array_of(columns.keys[0], raw)], names=["c"])
    written = {file.partition for file in write(plan_for(column(kind), tmp_path, spec), [batch]).files}
    fields = plan_for(column(kind), tmp_path, spec).partition_fields
    keys = pa.table([array_of(columns.keys[0], raw)], ["k1"])
    assert key_partitions(keys, columns, fields) == frozenset(written)


def test_partitions_decide_only_if_the_key_has_every_source_and_the_transform_is_certain() -> None:
    columns = columns_of([LongType()])
    keys = pa.table([[1, 2], pa.array([-(2**63), 5])], [CHANGE, "k1"])
    identity, other = PartitionField(1, 1000, "a", "identity"), PartitionField(2, 1001, "b", "identity")
    assert key_partitions(keys, columns, []) is None
    assert key_partitions(keys, columns, [identity, other]) is None
    assert key_partitions(keys, columns, [PartitionField(1, 1000, "a", "void")]) is None
    assert key_partitions(keys, columns, [PartitionField(1, 1000, "a", "day")]) is None
    assert key_partitions(keys, columns, [PartitionField(1, 1000, "a", "truncate[10]")]) is None  # one has none
    assert len(key_partitions(keys, columns, [identity]) or ()) == 2


def test_keys_of_two_columns_are_compared_column_by_column() -> None:
    columns = columns_of([LongType(), StringType()])
    ranges = key_ranges(pa.table([pa.array([1, 9]), pa.array(["a", "z"])], ["k1", "k2"]), columns)
    one = {1: (1).to_bytes(8, "little"), 2: b"m"}
    assert not ranges.may_be_in(one, one)
    assert ranges.may_be_in(one | {2: b"a"}, one)
    assert Schema(NestedField(1, "c", LongType())).find_type(1) == LongType()
