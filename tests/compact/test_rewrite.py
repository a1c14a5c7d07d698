"""A rewrite keeps the live rows of all types bit for bit, and leaves out deleted rows."""

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestampType
from pyroaring import BitMap64

from lakesink.compact.rewrite import ChosenFile, Opened, _live, open_all, rewrite
from lakesink.parquet.filesystem import NewFiles
from lakesink.rows.plan import ParquetOptions, WritePlan
from lakesink_protocol.change import ContentFile
from lakesink_protocol.errors import WriteError
from testkit.examples import examples
from testkit.tasks import exactly, in_batches, local, new_table, plan_for, rows_by_duckdb, rows_of, write
from tests.writer.random_tables import Case, cases

EXAMPLES = examples(14)
NUMBERS = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "text", StringType()))


def small(file: ContentFile, deleted: Sequence[int] = ()) -> ChosenFile:
    return ChosenFile(file.path, file.file_size_bytes, file.record_count, BitMap64(deleted))


def opened(files: Sequence[ChosenFile], plan: WritePlan) -> list[Opened]:
    return open_all(files, lambda path: Path(local(path)).open("rb"), plan)


def rewritten(files: Sequence[ChosenFile], plan: WritePlan, partition: Any = ()) -> list[ContentFile]:
    return rewrite(opened(files, plan), partition, plan, NewFiles.at(plan.data_location, {}, None))


def of_numbers(folder: Path, *parts: Sequence[int], **options: Any) -> tuple[WritePlan, list[ContentFile]]:
    """A file for each part."""
    plan = plan_for(NUMBERS, folder, **options)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
    rows = [[{"id": number, "text": f"row {number}"} for number in part] for part in parts]
    return plan, [write(plan, [pa.RecordBatch.from_pylist(part, schema=schema)]).files[0] for part in rows]


@pytest.mark.dear
@EXAMPLES
@given(case=cases())
def test_live_rows_of_all_types_stay_as_they_are(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder, new_table(Path(folder), case.schema, case.spec) as table:
        plan = plan_for(table.schema(), f"{table.location()}/data", table.spec(), open_files=1)
        found = write(plan, in_batches(case.sent, 5)).files
        chance = random.Random(len(found))
        for partition in sorted({file.partition for file in found}, key=repr):
            files = [file for file in found if file.partition == partition]
            gone = [[at for at in range(file.record_count) if chance.random() < 0.3] for file in files]
            assert len(opened([small(file) for file in files], plan)) == len(files)
            new = rewritten([small(*one) for one in zip(files, gone, strict=True)], plan, partition)
            live = [
                exactly(row)
                for file, deleted in zip(files, gone, strict=True)
                for at, row in enumerate(rows_of([file]))
                if at not in deleted
            ]
            assert [exactly(row) for row in rows_of(new)] == live
            assert [exactly(row) for row in rows_by_duckdb(new)] == live if new else not live
            assert {file.partition for file in new} <= {partition}


def test_what_is_stated_of_a_new_file_is_what_the_writer_would_state(tmp_path: Path) -> None:
    plan, files = of_numbers(tmp_path, range(5), range(100, 105), range(50, 55))
    [new] = rewritten([small(files[0], [0, 1]), small(files[1]), small(files[2], range(5))], plan)
    _, [same] = of_numbers(tmp_path, [2, 3, 4, 100, 101, 102, 103, 104])
    stated = (
        "record_count",
        "value_counts",
        "null_value_counts",
        "lower_bounds",
        "upper_bounds",
        "partition",
        "spec_id",
    )
    assert [getattr(new, name) for name in stated] == [getattr(same, name) for name in stated]
    assert new.path != same.path


def test_files_without_a_live_row_leave_no_file(tmp_path: Path) -> None:
    plan, files = of_numbers(tmp_path, range(3), range(3, 6))
    assert rewritten([small(file, range(3)) for file in files], plan) == []


def test_rows_of_long_files_stay_in_their_order_across_row_groups(tmp_path: Path) -> None:
    plan, files = of_numbers(tmp_path, range(200_000), parquet=ParquetOptions(row_group_size_bytes=500_000))
    [new] = rewritten([small(files[0], range(0, 200_000, 3)), small(files[0], [5])], plan)
    expected = [at for at in range(200_000) if at % 3] + [at for at in range(200_000) if at != 5]
    assert pq.ParquetFile(local(new.path)).read()["id"].to_pylist() == expected
    assert pq.read_metadata(local(new.path)).num_row_groups > 3


@pytest.mark.parametrize(
    "other",
    [
        Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "renamed", StringType())),
        Schema(NestedField(1, "id", LongType(), required=True), NestedField(3, "text", StringType())),
        Schema(NestedField(1, "id", IntegerType(), required=True), NestedField(2, "text", StringType())),
        Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType())),
        Schema(*NUMBERS.fields, NestedField(3, "at", TimestampType())),
        Schema(*NUMBERS.fields[::-1]),
    ],
    ids=["name", "id", "type", "optional", "one more", "order"],
)
def test_a_file_with_other_columns_is_not_rewritten(tmp_path: Path, other: Schema) -> None:
    plan, files = of_numbers(tmp_path, range(3))
    assert len(opened([small(files[0])], plan)) == 1
    assert opened([small(files[0])], plan_for(other, tmp_path)) == []


def test_a_file_of_another_size_or_number_of_rows_is_refused(tmp_path: Path) -> None:
    plan, [file] = of_numbers(tmp_path, range(3))
    for stated in (ChosenFile(file.path, file.file_size_bytes + 1, 3), ChosenFile(file.path, file.file_size_bytes, 4)):
        with pytest.raises(WriteError, match="manifest has"):
            opened([stated], plan)


def test_a_position_behind_the_last_row_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    plan, [file] = of_numbers(tmp_path, range(3))
    before = set(tmp_path.rglob("*.parquet"))
    with pytest.raises((WriteError, pa.ArrowException)):
        rewritten([small(file, [7])], plan)
    assert set(tmp_path.rglob("*.parquet")) == before


@pytest.mark.dear
def test_wide_rows_are_rewritten_a_few_at_a_time(tmp_path: Path) -> None:
    """A file that repeats one long value is small, and its rows are not."""
    plan, wide = plan_for(NUMBERS, tmp_path), pa.repeat(pa.scalar("x" * 10_000), 20_000)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
    rows = pa.table([pa.array(range(20_000), pa.int64()), wide], schema=schema)
    [file] = write(plan, in_batches(rows, 1_000)).files
    [one] = opened([small(file)], plan)
    assert file.file_size_bytes < 1_000_000
    assert max(batch.nbytes for batch in _live(one)) < 8 * 2**20
    [new] = rewritten([small(file, [0, 19_999])], plan)
    assert [row["id"] for row in rows_of([new])] == list(range(1, 19_999))
