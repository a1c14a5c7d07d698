"""Rows of files come in batches of a few MiB, for wide rows and for files that are small on disk too."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from lakesink.read.file_rows import RowsFile, RowsPart
from lakesink.sinks.kafka.kafka_sink import StagingFolder
from lakesink.sinks.staged.part_receipt import Part

MOST_BYTES = 10 * 2**20
REPEATED = pa.repeat(pa.scalar("x" * 20_000), 5_000)
DISTINCT = pa.array([os.urandom(10_000).hex() for _ in range(1_000)])
NARROW = pa.array([str(number) for number in range(200_000)])


def as_data_file(path: Path, rows: int) -> Iterator[pa.RecordBatch]:
    schema = Schema(NestedField(1, "value", StringType())).model_dump_json()
    return RowsPart([RowsFile(str(path), rows, path.stat().st_size, "batch 7")], schema, {}, None).rows()


def as_staged_part(path: Path, rows: int) -> Iterator[pa.RecordBatch]:
    return StagingFolder(str(path.parents[2]), path.parents[1].name).rows([Part(path.name, rows, path.stat().st_size)])


@pytest.mark.parametrize("read", [as_data_file, as_staged_part])
@pytest.mark.parametrize(
    ("values", "batches"), [(REPEATED, 5), (DISTINCT, 2), (NARROW, 1)], ids=["repeated", "distinct", "narrow"]
)
def test_wide_rows_come_a_few_at_a_time(tmp_path: Path, read: Any, values: pa.Array, batches: int) -> None:
    path = tmp_path / "sink" / "parts" / "part.parquet"
    path.parent.mkdir(parents=True)
    schema = pa.schema([pa.field("value", pa.string(), metadata={b"PARQUET:field_id": b"1"})])
    pq.write_table(pa.table([values], schema=schema), path)
    found = list(read(path, len(values)))
    assert max(batch.nbytes for batch in found) < MOST_BYTES
    assert batches <= len(found) < 5 * batches
    assert pa.chunked_array([batch.column(0) for batch in found]).equals(pa.chunked_array([values]))
