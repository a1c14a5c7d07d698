"""Files with other columns are rewritten into the table's present ones, or stay with a reason; never a silent NULL."""

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from lakesink.sinks.iceberg.upkeep.policy import Policy
from testkit.tasks import local
from tests.upkeep.lake import TARGET, Kept

STRUCT = StructType(NestedField(4, "x", IntegerType()), NestedField(5, "y", StringType()))
NESTED = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "s", STRUCT),
    NestedField(3, "l", ListType(6, STRUCT, element_required=False)),
    NestedField(7, "m", MapType(8, StringType(), 9, STRUCT, value_required=False)),
)
INNER = pa.struct([("x", pa.int32()), ("y", pa.string())])
ARROW = pa.schema([("id", pa.int64()), ("s", INNER), ("l", pa.list_(INNER)), ("m", pa.map_(pa.string(), INNER))])
MAPPING = "schema.name-mapping.default"


def values(start: int) -> pa.Table:
    found = [
        {"id": number, "s": {"x": number, "y": "y"}, "l": [{"x": 1, "y": None}, None], "m": [("k", {"x": 2, "y": "z"})]}
        for number in range(start, start + 5)
    ]
    return pa.Table.from_pylist([*found, {"id": start + 5, "s": None, "l": None, "m": None}], schema=ARROW)


def with_foreign_files(folder: Path, tables: list[pa.Table], schema: Schema = NESTED, **writing: Any) -> Kept:
    """Files without field ids, which PyIceberg adds with a name mapping."""
    kept = Kept.make(folder, schema)
    paths = [folder / f"other-{number}.parquet" for number in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path, **writing)
    kept.table.add_files(list(map(str, paths)))
    return kept


def run(kept: Kept) -> Any:
    return kept.maintenance(Policy(TARGET, min_input_files=2)).run()


def test_columns_inside_structs_of_files_without_field_ids_keep_their_values(tmp_path: Path) -> None:
    kept = with_foreign_files(tmp_path, [values(0), values(10)])
    before = kept.rows()
    assert len(run(kept).groups) == kept.checked == 1
    assert kept.rows() == before
    [file] = kept.live().data
    found = pq.ParquetFile(local(file.path)).read().to_pylist()
    assert found == values(0).to_pylist() + values(10).to_pylist()


@pytest.mark.parametrize("lacks", ["x", "element", "value"])
def test_a_file_of_which_the_mapping_does_not_know_a_part_stays_and_is_named(tmp_path: Path, lacks: str) -> None:
    kept = with_foreign_files(tmp_path, [values(0), values(10)])

    def without(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kept_fields = [one for one in fields if lacks not in one["names"]]
        return [{**one, "fields": without(one.get("fields", []))} for one in kept_fields]

    mapping = without(json.loads(kept.table.properties[MAPPING]))
    with kept.table.transaction() as change:
        change.set_properties({MAPPING: json.dumps(mapping)})
    files, report = kept.live().data, run(kept)
    assert [one.reason.partition(":")[0] for one in report.left] == ["field-ids"] * 2
    assert (report.groups, kept.live().data) == ((), files)


def test_a_file_without_field_ids_and_without_a_mapping_stays_until_there_is_one(tmp_path: Path) -> None:
    kept = with_foreign_files(tmp_path, [values(0), values(10)])
    mapping, maintenance = kept.table.properties[MAPPING], kept.maintenance(Policy(TARGET, min_input_files=2))
    with kept.table.transaction() as change:
        change.remove_properties(MAPPING)
    assert [one.reason.partition(":")[0] for one in maintenance.run().left] == ["field-ids"] * 2
    with kept.table.transaction() as change:
        change.set_properties({MAPPING: mapping})
    assert len(maintenance.run().groups) == 1


def test_columns_that_were_added_dropped_renamed_and_widened_are_as_readers_see_them(tmp_path: Path) -> None:
    kept = Kept.make(tmp_path, NESTED)
    kept.table.append(values(0).cast(kept.table.schema().as_arrow()))
    with kept.table.update_schema() as change:
        change.add_column(("s", "z"), StringType())
        change.add_column("new", LongType())
        change.delete_column(("s", "y"))
        change.rename_column("l", "items")
        change.update_column(("s", "x"), LongType())
        change.move_first("m")
    more = [{"id": 20, "s": {"x": 2**40, "z": "z"}, "items": [], "m": [], "new": 1}]
    kept.table.append(pa.Table.from_pylist(more, schema=kept.table.schema().as_arrow()))
    before = kept.rows()
    assert len(run(kept).groups) == kept.checked == 1
    assert kept.rows() == before


def test_a_file_without_a_required_column_stays(tmp_path: Path) -> None:
    kept = with_foreign_files(tmp_path, [values(0), values(10)])
    kept.is_readable = False
    with kept.table.update_schema(allow_incompatible_changes=True) as change:
        change.add_column("needed", LongType())
    with kept.table.update_schema(allow_incompatible_changes=True) as change:
        change.update_column("needed", required=True)
    report = run(kept)
    assert [one.reason.partition(":")[0] for one in report.left] == ["required"] * 2
    assert report.groups == ()


def test_a_value_that_the_present_type_does_not_have_keeps_its_file(tmp_path: Path) -> None:
    """Nanoseconds of another program: no reader of the table shows the last digits, and a rewrite would lose them."""
    schema = Schema(NestedField(1, "at", TimestamptzType()))
    kept = with_foreign_files(
        tmp_path, [pa.table({"at": pa.array([1000, 2000], pa.timestamp("us", "UTC"))})] * 2, schema
    )
    path = Path(local(kept.live().data[0].path))
    exact = pa.table({"at": pa.array([1_000_001, 2], pa.timestamp("ns", "UTC"))})
    pq.write_table(exact, path, version="2.6")
    kept.is_readable = False
    report = run(kept)
    assert [one.reason.partition(":")[0] for one in report.left] == ["unreadable"]


@pytest.mark.parametrize("deprecated", [False, True])
def test_old_timestamps_of_other_programs_keep_their_values(tmp_path: Path, *, deprecated: bool) -> None:
    schema = Schema(NestedField(1, "at", TimestamptzType()))
    table = pa.table({"at": pa.array([-62_135_596_800_000_000, 0, None], pa.timestamp("us", "UTC"))})
    kept = with_foreign_files(tmp_path, [table, table], schema)
    for file in kept.live().data:
        pq.write_table(table, local(file.path), use_deprecated_int96_timestamps=deprecated)
    kept.is_readable = False  # PyIceberg reads INT96 in nanoseconds, which end in 1677
    run(kept)
    [file] = kept.live().data
    assert pq.ParquetFile(local(file.path)).read()["at"].to_pylist() == table["at"].to_pylist() * 2


def test_uuids_of_files_that_store_their_arrow_schema_keep_their_values(tmp_path: Path) -> None:
    """PyIceberg's files do. Arrow then reads an extension type, although the option for it is off."""
    parts = ListType(3, UUIDType(), element_required=False)
    kept = Kept.make(tmp_path, Schema(NestedField(1, "u", UUIDType()), NestedField(2, "l", parts)))
    some = pa.array([uuid.uuid4().bytes, None], pa.binary(16)).cast(pa.uuid())
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), some)
    for _ in range(2):
        kept.table.append(pa.table({"u": some, "l": lists}))
    before = kept.rows()
    assert len(run(kept).groups) == kept.checked == 1
    assert kept.rows() == before


REQUIRED = StructType(
    NestedField(20, "a", LongType(), required=True),
    NestedField(21, "q", StructType(NestedField(22, "z", StringType(), required=True)), required=True),
)


@pytest.mark.parametrize("within", [(), ("s",)], ids=["top", "nested"])
def test_a_struct_with_required_parts_that_was_added_is_null_in_older_files(
    tmp_path: Path, within: tuple[str, ...]
) -> None:
    kept = Kept.make(tmp_path, NESTED)
    for start in (0, 10):
        kept.table.append(values(start).cast(kept.table.schema().as_arrow()))
    before = [row for file in kept.live().data for row in pq.ParquetFile(local(file.path)).read().to_pylist()]
    with kept.table.update_schema() as change:
        change.add_column((*within, "new"), REQUIRED)
    report = run(kept)
    assert (len(report.groups), report.left) == (1, ())
    [file] = kept.live().data
    found = pq.ParquetFile(local(file.path)).read().to_pylist()
    for row in found:
        inner = row if not within else row["s"]
        assert inner is None or inner.pop("new") is None
    assert sorted(found, key=str) == sorted(before, key=str)


def test_required_parts_of_structs_that_are_null_may_be_missing_and_others_keep_their_file(tmp_path: Path) -> None:
    """Files of other programs often say of no column that it is required."""
    wrong = values(20).to_pylist()
    wrong[0]["s"]["x"] = None
    tables = [values(0), values(10), pa.Table.from_pylist(wrong, schema=ARROW)]
    kept = with_foreign_files(tmp_path, tables)
    with kept.table.update_schema(allow_incompatible_changes=True) as change:
        change.update_column(("s", "x"), required=True)
    kept.is_readable = False  # PyIceberg cannot read the third file
    report = run(kept)
    assert [(one.files, one.rows) for one in report.groups] == [(2, 12)]
    assert [(one.path[-15:], one.reason.partition(":")[0]) for one in report.left] == [("other-2.parquet", "required")]
    [file] = [file for file in kept.live().data if "other" not in file.path]
    assert pq.ParquetFile(local(file.path)).read().to_pylist() == values(0).to_pylist() + values(10).to_pylist()


def test_a_part_of_a_column_that_only_the_partition_tells_does_not_become_null(tmp_path: Path) -> None:
    parts = StructType(NestedField(3, "region", StringType()), NestedField(4, "x", LongType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", parts))
    kept = Kept.make(tmp_path, schema, PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "region")))
    for number in range(2):
        row = {"id": number, "s": {"region": "eu", "x": 1}}
        kept.table.append(pa.Table.from_pylist([row], schema=kept.table.schema().as_arrow()))
    path = Path(local(kept.live().data[0].path))
    found = pq.read_table(path, partitioning=None)
    part = pa.field(
        "s", pa.struct([found.schema.field("s").type.field("x")]), metadata=found.schema.field("s").metadata
    )
    x = found["s"].combine_chunks().field("x")
    lacks = found.set_column(1, part, pa.StructArray.from_arrays([x], fields=list(part.type)))
    pq.write_table(lacks, path)
    kept.is_readable = False
    report = run(kept)
    assert [one.reason.partition(":")[0] for one in report.left] == ["partition"]
    assert local(report.left[0].path) == str(path)
    assert report.groups == ()
