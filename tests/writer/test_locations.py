"""Paths read as Iceberg's, hold any value safely, and stay bounded; no two files share one."""

import hashlib
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.locations import ObjectStoreLocationProvider
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    DateType,
    DecimalType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from lakesink.parquet.locations import MAX_PARTITION_PATH, is_location, new_location, partition_path
from lakesink.parquet.partitions import group, partition_sources
from lakesink.rows.plan import PartitionField as PlanField
from lakesink.rows.schema import parse_schema
from testkit.tasks import column, plan_for, rows_of, sources_of, spec_of, write_values
from tests.writer.random_tables import TEXT

HUMAN: list[tuple[str, PrimitiveType, pa.DataType, Any, str]] = [
    ("identity", StringType(), pa.string(), "a b/c=d", "a+b%2Fc%3Dd"),
    ("identity", StringType(), pa.string(), None, "null"),
    ("identity", StringType(), pa.string(), "", ""),
    ("identity", StringType(), pa.string(), "..", ".."),
    ("identity", StringType(), pa.string(), "%2e%2e", "%252e%252e"),
    ("identity", StringType(), pa.string(), "\0\n", "%00%0A"),
    ("identity", StringType(), pa.string(), "é😀", "%C3%A9%F0%9F%98%80"),
    ("identity", LongType(), pa.int64(), -5, "-5"),
    ("identity", DecimalType(9, 2), pa.decimal128(9, 2), Decimal("-1.50"), "-1.50"),
    ("identity", DateType(), pa.date32(), -1, "1969-12-31"),
    ("identity", TimestampType(), pa.timestamp("us"), 1, "1970-01-01T00%3A00%3A00.000001"),
    ("identity", TimestamptzType(), pa.timestamp("us", "UTC"), 0, "1970-01-01T00%3A00%3A00%2B00%3A00"),
    ("identity", TimeType(), pa.time64("us"), 1_000_000, "00%3A00%3A01"),
    ("bucket[16]", LongType(), pa.int64(), 34, "3"),
    ("truncate[10]", LongType(), pa.int64(), -1, "-10"),
    ("year", DateType(), pa.date32(), -1, "1969"),
    ("month", DateType(), pa.date32(), -1, "1969-12"),
    ("day", DateType(), pa.date32(), -1, "1969-12-31"),
    ("hour", TimestampType(), pa.timestamp("us"), -1, "1969-12-31-23"),
    ("void", LongType(), pa.int64(), 7, "null"),
]


@pytest.mark.parametrize(("transform", "kind", "arrow", "value", "text"), HUMAN)
def test_paths_read_as_those_of_iceberg(
    transform: str, kind: PrimitiveType, arrow: pa.DataType, value: Any, text: str
) -> None:
    schema, spec = column(kind), spec_of(transform)
    [part] = group(pa.table({"c": pa.array([value], arrow)}), sources_of(schema, spec)).groups
    partitioned = parse_transform(transform).transform(kind)(value)
    assert partition_path(sources_of(schema, spec), part.partition) == f"p0={text}"
    assert spec.partition_to_path([partitioned], schema) == f"p0={text}"  # type: ignore[arg-type] # takes any sequence


@pytest.mark.parametrize("days", [-800_000, 5_000_000, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("transform", ["identity", "year", "month", "day"])
def test_dates_that_python_has_no_word_for_still_make_a_path(days: int, transform: str) -> None:
    schema, spec = column(DateType()), spec_of(transform)
    sources = sources_of(schema, spec)
    [part] = group(pa.table({"c": pa.array([days], pa.date32())}), sources).groups
    assert partition_path(sources, part.partition).startswith("p0=")


@given(value=st.one_of(TEXT, st.text(min_size=200, max_size=5_000)), name=st.text(min_size=1, max_size=300))
def test_no_partition_value_leaves_its_folder_or_makes_a_path_too_long(value: str, name: str) -> None:
    fields = (PlanField(1, 1000, name, "identity"), PlanField(1, 1001, name, "truncate[3000]"))
    sources = partition_sources(parse_schema(column(StringType()).model_dump_json()), fields)
    path = partition_path(sources, (value.encode(), value.encode()))
    assert path.isascii()
    assert path.isprintable()
    assert len(path) <= MAX_PARTITION_PATH
    assert all(len(part) <= 200 and "=" in part and part not in (".", "..") for part in path.split("/"))


def test_long_values_that_begin_alike_get_paths_of_their_own() -> None:
    sources = sources_of(column(StringType()), spec_of("identity"))
    values = [b"x" * 5_000, b"x" * 4_999 + b"y", b"x" * 4_999]
    assert len({partition_path(sources, (value,)) for value in values}) == len(values)


def test_a_long_value_is_cut_to_make_room_for_its_digest() -> None:
    sources = sources_of(column(StringType()), spec_of("identity"))
    assert partition_path(sources, (b"x" * 128,)) == f"p0={'x' * 128}"
    digest = hashlib.sha256(b"x" * 129).hexdigest()
    assert partition_path(sources, (b"x" * 129,)) == f"p0={'x' * 111}-{digest[:16]}"


def test_a_path_of_many_fields_stays_bounded() -> None:
    schema = column(StringType())
    fields = tuple(PlanField(1, 1000 + number, f"p{number}", "identity") for number in range(20))
    sources = partition_sources(parse_schema(schema.model_dump_json()), fields)
    assert len(partition_path(sources, (b"v" * 100,) * 20)) <= MAX_PARTITION_PATH


@pytest.mark.parametrize("value", ["..", "%2e", "\0", "\n", "x" * 5_000, "a/../../b", "😀" * 1_000, "."])
def test_hostile_partition_values_are_written_below_the_data_folder(value: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    receipt = write_values([value], pa.string(), column(StringType()), spec_of("identity"), folder)
    assert rows_of(receipt.files) == [{"c": value}]
    assert [str(path) for path in folder.rglob("*.parquet")] == [receipt.files[0].path]


@pytest.mark.parametrize("partitioned", [True, False])
@pytest.mark.parametrize("transforms", [(), ("bucket[4]",)])
def test_object_store_locations_are_hashed_as_iceberg_hashes_them(
    *, partitioned: bool, transforms: tuple[str, ...]
) -> None:
    schema, spec = column(LongType()), spec_of(*transforms)
    plan = plan_for(schema, "s3://lake/data", spec, object_storage=True, partitioned_paths=partitioned)
    location = new_location(plan, sources_of(schema, spec), 3, ((2).to_bytes(4, "little"),) * len(transforms))
    rest = location[len("s3://lake/data/0000/0000/0000/00000000/") :]
    properties = {
        "write.object-storage.partitioned-paths": str(partitioned).lower(),
        "write.data.path": "s3://lake/data",
    }
    assert ObjectStoreLocationProvider("s3://lake", properties).new_data_location(rest) == location
    assert rest.startswith("p0=2/events-7-" if partitioned and transforms else "events-7-")


def test_every_file_has_a_name_of_its_own_with_sink_batch_and_task() -> None:
    plan = plan_for(column(LongType()), "/lake/data")
    names = [new_location(plan, (), 41, ()).removeprefix("/lake/data/events-7-00041-") for _ in range(100)]
    assert len({uuid.UUID(name.removesuffix(".parquet")) for name in names}) == 100


def test_a_location_belongs_to_its_folder_stem_and_task_alone(tmp_path: Path) -> None:
    plan = plan_for(column(LongType()), tmp_path)
    location, folder, stem = new_location(plan, (), 7, ()), plan.data_location, plan.file_stem
    assert is_location(location, folder, stem)
    assert is_location(location, folder, stem, 7)
    assert not is_location(location, folder, stem, 8)
    assert not is_location(location, folder, f"{stem}0")
    assert not is_location(location, f"{folder}/other", stem)
    assert not is_location(location.replace(f"{folder}/", f"{folder}/../"), folder, stem)
    assert not is_location(f"{location}.crc", folder, stem)
