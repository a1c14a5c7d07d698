"""What a table says of itself agrees with the files on disk: summaries, inspection, snapshots, field ids."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import assume, given
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from lakesink_catalog.receipt import DataFileReceipt
from tests.readers.engines import by_datafusion
from tests.readers.known_bugs import rust_reads_manifests
from tests.readers.lake import Lake, StreamedTable
from tests.readers.random_streams import Story, examples, stories
from tests.writer.builders import local
from tests.writer.random_tables import ROW


@examples(30)
@given(story=stories())
def test_summaries_tell_the_files_of_every_batch_and_of_all_before(lake: Lake, story: Story) -> None:
    streamed = story.tell(lake)
    table = streamed.load()
    before: list[DataFileReceipt] = []
    for outcome, files in zip(streamed.committed, streamed.files, strict=True):
        summary = snapshot(table, outcome.snapshot_id).summary
        assert summary is not None
        assert counts(summary, "added-") == on_disk(files)
        before += files
        assert counts(summary, "total-") == on_disk(before)
        assert int(summary.get("changed-partition-count") or 0) == len({(file.spec_id, file.partition) for file in files})
        assert (outcome.files, outcome.rows, outcome.bytes) == on_disk(files)


@examples(30)
@given(story=stories())
def test_inspection_tells_what_is_on_disk(lake: Lake, story: Story) -> None:
    assume("uuid" not in str(story.case.schema))
    streamed = story.tell(lake)
    table = streamed.load()
    written = {file.path: file for files in streamed.files for file in files}
    files = table.inspect.files().to_pylist()
    assert {row["file_path"]: (row["record_count"], row["file_size_in_bytes"]) for row in files} == {
        path: (rows_in(path), size_of(path)) for path in written
    }
    batches = {file.path: batch.snapshot_id for batch, part in zip(streamed.committed, streamed.files, strict=True) for file in part}
    entries = table.inspect.entries().to_pylist()
    assert {row["data_file"]["file_path"]: row["snapshot_id"] for row in entries} == batches
    partitions = table.inspect.partitions().to_pylist()
    expected = Counter((file.spec_id, file.partition) for file in written.values())
    assert sorted(row["file_count"] for row in partitions) == sorted(expected.values())
    assert sum(row["record_count"] for row in partitions) == len(story.case.rows)
    for row in table.inspect.manifests().to_pylist():
        assert row["length"] == size_of(row["path"])
    assert sum(row["added_data_files_count"] + row["existing_data_files_count"] for row in table.inspect.manifests().to_pylist()) == len(written)
    assert len(table.inspect.snapshots()) == len(table.inspect.history()) == len(story.batches)


@examples(30)
@given(story=stories())
def test_every_snapshot_shows_whole_batches(lake: Lake, story: Story) -> None:
    streamed = story.tell(lake)
    table = streamed.load()
    for number, outcome in enumerate(streamed.committed, 1):
        expected = sorted(row for tasks in story.batches[:number] for numbers in tasks for row in numbers)
        scan = table.scan(snapshot_id=outcome.snapshot_id)
        assert sorted(scan.to_arrow()[ROW].to_pylist()) == expected
    versions = [*(e.metadata_file for e in table.metadata.metadata_log), table.metadata_location]
    if rust_reads_manifests(table):
        for number, version in enumerate(versions):
            expected = sorted(row for tasks in story.batches[:number] for numbers in tasks for row in numbers)
            assert sorted(by_datafusion(StaticTable.from_metadata(version))[ROW].to_pylist()) == expected


@examples(30)
@given(story=stories())
def test_every_file_has_the_tables_field_ids_at_every_level(lake: Lake, story: Story) -> None:
    streamed = story.tell(lake)
    expected = list(field_ids(streamed.load().schema().as_struct()))
    with duckdb.connect() as c:
        for file in (file for files in streamed.files for file in files):
            found = c.execute("select field_id from parquet_schema(?) where field_id is not null", [local(file.path)]).fetchall()
            assert [x[0] for x in found] == expected


def field_ids(kind):
    match kind:
        case StructType():
            for f in kind.fields:
                yield f.field_id
                yield from field_ids(f.field_type)
        case ListType():
            yield kind.element_id
            yield from field_ids(kind.element_type)
        case MapType():
            yield kind.key_id
            yield from field_ids(kind.key_type)
            yield kind.value_id
            yield from field_ids(kind.value_type)


def snapshot(table: Table, snapshot_id: int) -> Snapshot:
    found = table.snapshot_by_id(snapshot_id)
    assert found is not None
    return found


def counts(summary, prefix):
    return tuple(int(summary.get(prefix + x) or 0) for x in ("data-files", "records", "files-size"))


def on_disk(files):
    return (len(files), sum(rows_in(file.path) for file in files), sum(size_of(file.path) for file in files))

def size_of(path): return os.stat(local(path)).st_size

def rows_in(path): return pq.read_metadata(local(path)).num_rows
