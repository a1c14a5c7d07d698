"""A task writes files of the size asked for within its memory, and votes only for what is closed and whole."""

import gc
import math
import pickle
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, BooleanType, DoubleType, LongType, NestedField, StringType

from lakesink.rows.plan import ParquetOptions, SortField
from lakesink.rows.plan import PartitionField as PlanField
from lakesink_protocol.change import ContentFile
from lakesink_protocol.errors import WriteError
from lakesink_protocol.receipt import Receipt, decode
from testkit.tasks import column, footer, in_batches, plan_for, rows_of, spec_of, write, writer_of

KIB, MIB = 1024, 1024 * 1024
EVENTS = Schema(NestedField(1, "id", LongType()), NestedField(2, "body", BinaryType()))


def random_bodies(rows: int, size: int = 100) -> pa.Table:
    """Rows that do not compress."""
    source = random.Random(7)
    return pa.table({"id": range(rows), "body": [source.randbytes(size) for _ in range(rows)]})


def even_bodies(rows: int, size: int = 100) -> pa.Table:
    """Rows that compress a hundred times over."""
    source = random.Random(7)
    kinds = pa.array([source.randbytes(size) for _ in range(50)])
    bodies = kinds.take(pa.array(source.choices(range(len(kinds)), k=rows)))
    return pa.table({"id": pa.array([row // 1000 for row in range(rows)]), "body": bodies})


def check_files(receipt: Receipt) -> None:
    """What a receipt says of its files is what they are."""
    for file in receipt.files:
        found = footer(file)
        groups = [found.row_group(index) for index in range(found.num_row_groups)]
        assert file.file_size_bytes == Path(file.path).stat().st_size
        assert file.record_count == found.num_rows > 0
        assert file.split_offsets == tuple(
            sorted(group.column(0).dictionary_page_offset or group.column(0).data_page_offset for group in groups)
        )
        assert len(set(file.split_offsets)) == len(groups)
    assert receipt.rows == sum(file.record_count for file in receipt.files)


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def files_open_below(folder: Path) -> int:
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(link.readlink().is_relative_to(folder) for link in links)


@pytest.mark.parametrize("batches", [[], [pa.RecordBatch.from_pydict({"id": pa.array([], pa.int64())})]])
def test_a_task_without_rows_leaves_no_trace(batches: list[pa.RecordBatch], tmp_path: Path) -> None:
    receipt = write(plan_for(EVENTS, tmp_path / "data"), batches, task=3)
    assert (receipt.task, receipt.rows, receipt.files) == (3, 0, ())
    assert list(tmp_path.iterdir()) == []


def test_small_batches_become_one_row_group(tmp_path: Path) -> None:
    table = random_bodies(20_000)
    receipt = write(plan_for(EVENTS, tmp_path), in_batches(table, 100))
    check_files(receipt)
    assert [len(file.split_offsets) for file in receipt.files] == [1]
    assert rows_of(receipt.files) == table.to_pylist()


@pytest.mark.parametrize("rows_a_batch", [500, 1_000_000])
def test_row_groups_keep_within_their_limit_and_none_is_a_crumb(rows_a_batch: int, tmp_path: Path) -> None:
    table, limit = random_bodies(20_000), 256 * KIB
    plan = plan_for(EVENTS, tmp_path, parquet=ParquetOptions(row_group_size_bytes=limit))
    receipt = write(plan, in_batches(table, rows_a_batch))
    check_files(receipt)
    [file] = receipt.files
    sizes = [
        footer(file).row_group(index).num_rows * table.nbytes / table.num_rows
        for index in range(len(file.split_offsets))
    ]
    assert max(sizes) <= limit * 1.01
    assert min(sizes[:-1]) >= limit * 0.5
    assert rows_of(receipt.files) == table.to_pylist()


@pytest.mark.parametrize(
    ("table", "target"), [(random_bodies(40_000), 512 * KIB), (even_bodies(400_000), 64 * KIB)], ids=["random", "even"]
)
def test_files_roll_at_the_target_size_as_compressed(table: pa.Table, target: int, tmp_path: Path) -> None:
    parquet = ParquetOptions(row_group_size_bytes=512 * KIB, compression_level=3)
    receipt = write(
        plan_for(EVENTS, tmp_path, target_file_size_bytes=target, parquet=parquet), in_batches(table, 1_000)
    )
    check_files(receipt)
    assert len(receipt.files) > 3
    assert all(0.85 * target <= file.file_size_bytes <= 1.15 * target for file in receipt.files[:-1])
    assert max(len(file.split_offsets) for file in receipt.files) <= 8
    assert [row["id"] for row in rows_of(receipt.files)] == table["id"].to_pylist()


def test_partitions_share_one_bound_on_memory(tmp_path: Path) -> None:
    limit, highest = 8 * MIB, 0
    table = random_bodies(300_000).append_column("last", pa.nulls(300_000, pa.bool_()))
    schema = Schema(*EVENTS.fields, NestedField(3, "last", BooleanType()))  # a file keeps its last column's buffers
    before = pa.total_allocated_bytes()

    def measured() -> Iterator[pa.RecordBatch]:
        nonlocal highest
        for batch in in_batches(table, 2_000):
            highest = max(highest, pa.total_allocated_bytes() - before)
            yield batch

    receipt = write(plan_for(schema, tmp_path, spec_of("bucket[50]"), buffer_bytes=limit), measured())
    check_files(receipt)
    assert 0 < highest < limit
    assert {row["id"] for row in rows_of(receipt.files)} == set(range(300_000))


def test_the_largest_partition_is_written_first_and_small_ones_wait(tmp_path: Path) -> None:
    rows = 60_000
    skewed = pa.table({"id": [n % 30 if n % 20 == 0 else 1_000 for n in range(rows)], "body": [b"x" * 100] * rows})
    plan = plan_for(EVENTS, tmp_path, spec_of("identity"), buffer_bytes=MIB)
    receipt = write(plan, in_batches(skewed, 1_000))
    check_files(receipt)
    groups = {file.partition[0]: len(file.split_offsets) for file in receipt.files}
    assert len(groups) == len(receipt.files)
    assert groups.pop((1_000).to_bytes(8, "little")) > 5
    assert max(groups.values()) <= 2


def test_no_more_files_are_open_than_allowed(tmp_path: Path) -> None:
    highest = 0

    def watched() -> Iterator[pa.RecordBatch]:
        nonlocal highest
        for batch in in_batches(random_bodies(30_000), 1_000):
            yield batch
            highest = max(highest, files_open_below(tmp_path))

    plan = plan_for(EVENTS, tmp_path, spec_of("bucket[8]"), buffer_bytes=200 * KIB, open_files=3)
    receipt = write(plan, watched())
    check_files(receipt)
    assert highest == 3
    assert len(receipt.files) > 8
    assert sorted(row["id"] for row in rows_of(receipt.files)) == list(range(30_000))


def descriptions() -> int:
    """How many there are: of those that know the class, for a worker has millions of objects."""
    return sum(isinstance(found, ContentFile) for found in gc.get_referrers(ContentFile))


def test_a_task_keeps_descriptions_of_few_files_that_it_has_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has the statistics of all columns; a task may write one for each of many thousand partitions."""
    monkeypatch.setattr("lakesink_protocol.receipt.GROUP_BYTES", 4_000)
    kept = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(30):
            yield pa.record_batch({"id": [number], "body": [b"x"]})
            if number % 10 == 9:
                kept.append(descriptions())

    before = descriptions()
    receipt = write(plan_for(EVENTS, tmp_path, spec_of("identity"), buffer_bytes=1, open_files=2), batches())
    assert len(receipt.files) == 30
    assert 0 < max(kept) - before < 10


def test_the_file_that_waited_longest_is_closed_first(tmp_path: Path) -> None:
    hot, body = 1_000, b"x" * 1_000
    batches = [pa.RecordBatch.from_pydict({"id": [hot, hot, cold], "body": [body] * 3}) for cold in range(20)]
    receipt = write(plan_for(EVENTS, tmp_path, spec_of("identity"), buffer_bytes=1, open_files=2), batches)
    check_files(receipt)
    assert Counter(file.partition for file in receipt.files)[(hot.to_bytes(8, "little"),)] == 1


def test_at_the_end_partitions_with_open_files_are_not_pushed_out_by_new_ones(tmp_path: Path) -> None:
    body, opened = b"x" * 1_000, [1_000, 1_001, 1_002]
    first = pa.RecordBatch.from_pydict({"id": opened * 10, "body": [body] * 30})
    last = pa.RecordBatch.from_pydict({"id": [*range(20), *opened], "body": [body] * 23})
    plan = plan_for(EVENTS, tmp_path, spec_of("identity"), buffer_bytes=first.nbytes, open_files=3)
    receipt = write(plan, [first, last])
    check_files(receipt)
    assert len(receipt.files) == len(opened) + 20


@pytest.mark.parametrize("level", [None, 3])
@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"])
def test_every_codec_is_written_with_and_without_a_level(codec: str, level: int | None, tmp_path: Path) -> None:
    parquet = ParquetOptions(compression_codec=codec, compression_level=level)
    receipt = write(plan_for(EVENTS, tmp_path, parquet=parquet), in_batches(even_bodies(100), 10))
    assert footer(receipt.files[0]).row_group(0).column(0).compression.lower() == codec
    assert len(rows_of(receipt.files)) == 100


def test_attempts_of_one_task_share_no_name(tmp_path: Path) -> None:
    plan = plan_for(EVENTS, tmp_path)
    attempts = [write(plan, in_batches(even_bodies(10), 10), task=5) for _ in range(2)]
    assert len({file.path for receipt in attempts for file in receipt.files}) == 2


def test_the_writer_travels_by_pickle_without_its_plan_changing(tmp_path: Path) -> None:
    writer = writer_of(plan_for(EVENTS, tmp_path, spec_of("bucket[4]")))
    copied = pickle.loads(pickle.dumps(writer))  # noqa: S301 - just pickled
    assert copied == writer
    assert decode(copied.write(0, iter(in_batches(even_bodies(10), 5)))).rows == 10


class Interrupted(BaseException):
    """What stops a task from outside."""


@pytest.mark.parametrize("error", [ValueError("upstream"), Interrupted()])
def test_a_failure_between_batches_leaves_closed_files_and_no_open_one(error: BaseException, tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from in_batches(random_bodies(20_000), 1_000)
        raise error

    parquet = ParquetOptions(row_group_size_bytes=100 * KIB)
    plan = plan_for(EVENTS, tmp_path, target_file_size_bytes=700 * KIB, parquet=parquet)
    with pytest.raises(type(error)):
        write(plan, failing())
    left = files_below(tmp_path)
    assert len(left) >= 1
    assert all(pq.read_metadata(path).num_rows > 0 and path.stat().st_size > 600 * KIB for path in left)


def test_a_bad_row_late_in_the_task_leaves_nothing_to_vote_for(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    batches = [
        pa.RecordBatch.from_pydict({"id": pa.array([1, 2], pa.int64())}),
        pa.RecordBatch.from_pydict({"id": pa.array([None], pa.int64())}),
    ]
    with pytest.raises(WriteError, match="LAKESINK_NULL_IN_REQUIRED"):
        write(plan_for(schema, tmp_path, buffer_bytes=1), batches)
    assert files_below(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    with pytest.raises(WriteError, match="LAKESINK_STORAGE_WRITE") as caught:
        write(plan_for(EVENTS, tmp_path / "data"), in_batches(even_bodies(10), 5))
    assert str(tmp_path) in str(caught.value)
    assert len(str(caught.value).splitlines()[0]) < 200


def test_not_a_number_is_counted_over_row_groups_and_partitions(tmp_path: Path) -> None:
    values = [math.nan if n % 3 == 0 else float(n) for n in range(3_000)]
    batch = pa.RecordBatch.from_pydict({"c": values})
    plan = plan_for(column(DoubleType()), tmp_path, parquet=ParquetOptions(row_group_size_bytes=4_000))
    [file] = write(plan, in_batches(pa.Table.from_batches([batch]), 100)).files
    assert file.nan_value_counts == {1: 1_000}


def test_strings_reach_the_file_as_they_were_gathered(tmp_path: Path) -> None:
    table = pa.table({"c": [f"{n}😀" for n in range(5_000)]})
    receipt = write(plan_for(column(StringType()), tmp_path, buffer_bytes=5_000), in_batches(table, 7))
    assert rows_of(receipt.files) == table.to_pylist()


@pytest.mark.parametrize(
    ("transforms", "clustered"),
    [
        (("bucket[4]",), ()),
        (("identity",), ((("id",), "identity"),)),
        (("truncate[10]", "bucket[4]"), ((("id",), "truncate[10]"),)),
    ],
)
def test_rows_are_not_clustered_by_buckets_which_spark_cannot_compute(
    transforms: tuple[str, ...], clustered: object, tmp_path: Path
) -> None:
    fields = tuple(PlanField(1, 1000 + at, f"p{at}", one) for at, one in enumerate(transforms))
    plan = plan_for(EVENTS, tmp_path, partition_fields=fields, distribution_mode="hash")
    assert writer_of(plan).clustered_by == clustered


@pytest.mark.parametrize(
    ("changed", "by_range", "wanted"),
    [
        ({}, True, ["identity", "truncate[10]"]),
        ({"distribution_mode": "hash"}, False, ["identity"]),
        ({"sort_order": ()}, False, ["identity"]),
        ({"distribution_mode": "none"}, False, []),
    ],
)
def test_rows_are_ranged_by_partition_and_order_if_the_table_asks_for_it(
    changed: dict[str, Any], by_range: object, wanted: list[str], tmp_path: Path
) -> None:
    fields = tuple(PlanField(1, 1000 + at, f"p{at}", one) for at, one in enumerate(("identity", "bucket[4]")))
    order = tuple(SortField(1, one, is_descending=True, nulls_first=True) for one in ("bucket[9]", "truncate[10]"))
    given: dict[str, Any] = {"distribution_mode": "range", "sort_order": order, **changed}
    writer = writer_of(plan_for(EVENTS, tmp_path, partition_fields=fields, **given))
    assert (writer.by_range, list(writer.clustered_by)) == (by_range, [(("id",), one) for one in wanted])
