"""Maintenance keeps the table's sort order: each new file has it as a whole, and no row is lost on the way."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import LongType, NestedField

from lakesink.parquet.order import indices, sort_keys
from lakesink.rows.plan import SortField
from lakesink.rows.schema import arrow_schema, parse_schema
from lakesink.sinks.iceberg.upkeep import rewrite
from lakesink.sinks.iceberg.upkeep.policy import Policy
from lakesink.sinks.iceberg.upkeep.sorting import sorted_ranges
from testkit.examples import seeds
from testkit.tasks import local
from tests.faults.test_sort_orders import ordered_by
from tests.upkeep.lake import NUMBERS, Kept, rows
from tests.writer.test_order import POOLS, TRANSFORMS, reference

BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))


@pytest.mark.parametrize("seed", seeds(8))
def test_ranges_of_runs_on_disk_are_the_rows_as_one_sort_orders_them(seed: int) -> None:
    chance = random.Random(seed)
    count, distinct = chance.randrange(4_000), chance.choice([1, 3, 100, 10**9])
    values = [None if chance.random() < 0.1 else chance.randrange(distinct) for _ in range(count)]
    table = rows(0, count).set_column(0, "id", pa.array(values, pa.int64()))
    field = SortField(1, "identity", chance.random() < 0.5, chance.random() < 0.5)
    order = sort_keys(parse_schema(NUMBERS.model_dump_json()), [field])

    def chunks(size: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, count, size):
            yield table.slice(start, size).combine_chunks().to_batches()[0]

    size = chance.randrange(1 + count // 20, 2 + count)
    found = list(sorted_ranges(chunks(size), order))
    numbers = [number for _, part in found for number in part.to_pylist()]
    one_sort = indices(table, order)
    assert numbers == (list(range(count)) if one_sort is None else one_sort.to_pylist())
    expected = table.take(pa.array(numbers, pa.int64())).to_pylist()
    assert [row for part, _ in found for row in part.to_pylist()] == expected
    assert max((len(part) for part, _ in found), default=0) < 2 * size + 2  # memory holds one, whatever the values are


@pytest.mark.parametrize("seed", seeds(4))
def test_ranges_are_in_the_specifications_order_for_each_type(seed: int) -> None:
    chance = random.Random(seed)
    chosen = chance.choices(POOLS, k=chance.choice([1, 1, 2, 3]))
    columns = [NestedField(number, f"c{number}", kind) for number, (kind, _) in enumerate(chosen, 1)]
    schema = parse_schema(Schema(*columns, NestedField(99, "number", LongType())).model_dump_json())
    fields, keys, values = [], [], []
    for number, (kind, value) in enumerate(chosen, 1):
        possible = [name for name in TRANSFORMS if parse_transform(name).can_transform(kind)]
        fields.append(SortField(number, chance.choice(possible), chance.random() < 0.5, chance.random() < 0.5))
        few = [value(chance) for _ in range(chance.choice([1, 6, 300]))] + [None] * chance.randrange(2)
        values.append(chance.choices(few, k=1_000))
        transform = parse_transform(fields[-1].transform).transform(kind)
        keys.append([transform(one) for one in values[-1]])
    values.append(list(range(1_000)))
    kinds = arrow_schema(schema)
    arrays = [pa.array(one, field.type) for one, field in zip(values, kinds, strict=True)]
    chunks = pa.Table.from_arrays(arrays, schema=kinds).to_batches(chance.choice([50, 300, 1_000]))
    found = list(sorted_ranges(chunks, sort_keys(schema, fields)))
    numbers = [number for _, part in found for number in part.to_pylist()]
    assert numbers == reference(fields, list(zip(*keys, strict=True)))
    assert pa.concat_tables(part for part, _ in found).column("number").to_pylist() == numbers


def test_a_range_is_bounded_in_bytes_where_the_rows_of_some_keys_are_much_larger() -> None:
    ids = random.Random(1).sample(range(2_000), 2_000)
    table = pa.table({"id": ids, "part": [""] * 2_000, "v": ["x" * (6_000 if one < 100 else 20) for one in ids]})
    order = sort_keys(parse_schema(NUMBERS.model_dump_json()), [SortField(1, "identity", False, True)])  # noqa: FBT003
    found = [part for part, _ in sorted_ranges(table.to_batches(200), order)]
    assert pa.concat_tables(found).column("id").to_pylist() == list(range(2_000))
    assert max(part.nbytes for part in found) < 2 * table.nbytes / 10


def test_a_process_that_is_killed_leaves_no_rows_on_local_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    order = sort_keys(parse_schema(NUMBERS.model_dump_json()), [SortField(1, "identity", True, True)])  # noqa: FBT003
    ranges = sorted_ranges((rows(start, 10).to_batches()[0] for start in range(0, 50, 10)), order)
    first = next(ranges)[0]
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == []
    found = [first, *(part for part, _ in ranges)]
    assert pa.concat_tables(found).column("id").to_pylist() == list(range(50))[::-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spec", [UNPARTITIONED_PARTITION_SPEC, BY_PART], ids=["whole", "by-part"])
def test_new_files_have_the_order_and_rows_that_are_deleted_meanwhile_stay_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: PartitionSpec
) -> None:
    """The rows of both are in several ranges, of which each becomes a row group."""
    monkeypatch.setattr(rewrite, "CHUNK_BYTES", 12_000)
    kept = Kept.make(tmp_path, spec=spec)
    starts = [number % 4 * 1_000 + 200 * (number // 4) for number in range(8)]
    for number, start in enumerate(starts):
        kept.table.append(rows(start, 150, "ab"[number % 2]))
    ordered_by(kept.table, "id")
    kept.delete(lambda row: row["id"] % 7 == 0)
    kept.before_commit.append(lambda: kept.delete(lambda row: row["id"] % 5 == 0))
    report = kept.maintenance(Policy(target_file_size=10**6, min_input_files=2)).run()
    stay = sorted(one for start in starts for one in range(start, start + 150) if one % 7 and one % 5)
    assert sorted(kept.table.scan().to_arrow().column("id").to_pylist()) == stay
    assert report.groups[0].carried > 20
    assert kept.checked == len(report.groups)
    for file in kept.table.inspect.data_files().to_pylist():
        found = pq.ParquetFile(local(file["file_path"]))
        ids = found.read().column("id").to_pylist()
        assert (file["sort_order_id"], ids) == (1, sorted(ids, reverse=True))
        assert found.num_row_groups > 1
    assert len(kept.live().data) == len(report.groups) == (2 if spec.fields else 1)
    assert kept.maintenance().run().groups == ()


def test_rows_that_new_partitions_divide_are_sorted_in_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "CHUNK_BYTES", 12_000)
    kept = Kept.make(tmp_path)
    parts: list[Any] = [rows(start, 200, part) for start, part in ((500, "b"), (0, "a"), (900, "a"), (100, "b"))]
    for part in parts:
        kept.table.append(part)
    with kept.table.update_spec() as update:
        update.add_identity("part")
    ordered_by(kept.table, "id")
    kept.before_commit.append(lambda: kept.delete(lambda row: row["id"] in (501, 950, 199)))
    report = kept.maintenance().run()
    assert sum(group.carried for group in report.groups) == 4
    assert len(kept.rows()) == 796
    assert not {501, 950, 199} & set(kept.table.scan().to_arrow().column("id").to_pylist())
    read = [pq.read_table(local(file.path)).column("id").to_pylist() for file in kept.live().data]
    assert sorted(map(len, read)) == [400, 400]
    assert all(ids == sorted(ids, reverse=True) for ids in read)
