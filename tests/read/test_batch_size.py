"""How many rows of a Parquet file are read at once."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakesink.parquet.batch_size import rows_at_once

BYTES = 2**18
ROWS = 20_000
NUMBERS = pa.array(range(ROWS), pa.int64())
REPEATED = [f"{number % 7:0500}" for number in range(ROWS)]
TABLES = {
    "numbers": pa.table({str(at): NUMBERS for at in range(30)}),
    "numbers and few texts": pa.table({"t": ["x"] * ROWS, **{str(at): NUMBERS for at in range(30)}}),
    "texts": pa.table({"t": [f"{number:0100}" for number in range(ROWS)]}),
    "repeated texts": pa.table({"n": NUMBERS, "t": REPEATED}),
    "numbers and repeated texts": pa.table({"t": REPEATED, **{str(at): NUMBERS for at in range(60)}}),
    "repeated bytes of one length": pa.table({"n": NUMBERS, "t": pa.array(map(str.encode, REPEATED), pa.binary(500))}),
    "few bytes of one length": pa.table(
        {"n": NUMBERS, "t": pa.array([None if at % 50 else b"%0500d" % at for at in range(ROWS)], pa.binary(500))}
    ),
    "repeated texts in a map": pa.table(
        {"m": pa.array([[(text, 1)] for text in REPEATED], pa.map_(pa.string(), pa.int64())), "n": NUMBERS}
    ),
    "numbers in lists": pa.table({"l": pa.array([list(range(30))] * ROWS, pa.list_(pa.int64()))}),
}
ENCODINGS: dict[str, dict[str, Any]] = {
    "a dictionary": {},
    "plain": {"use_dictionary": False},
    "shared prefixes": {"use_dictionary": False, "column_encoding": {"t": "DELTA_BYTE_ARRAY"}},
}


class Counted(io.BytesIO):
    """Counts the bytes that are read."""

    count = 0

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self.count += len(found)
        return found


def written(table: pa.Table, **options: Any) -> Counted:
    file = Counted()
    pq.write_table(table, file, row_group_size=ROWS // 2, **options)
    return file


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", TABLES)
def test_a_batch_has_about_the_wanted_bytes_in_each_encoding(name: str, encoding: str) -> None:
    parquet = pq.ParquetFile(written(TABLES[name], **ENCODINGS[encoding]))
    first = next(parquet.iter_batches(rows_at_once(parquet, BYTES)))
    assert BYTES / 2 <= first.nbytes <= BYTES * 2


def test_no_page_of_numbers_or_plain_texts_is_read_to_learn_their_width() -> None:
    table = pa.table({"n": NUMBERS, "t": REPEATED, "few": ["x"] * ROWS})
    file = written(table, use_dictionary=["n", "few"], compression="none")
    parquet = pq.ParquetFile(file)
    file.count = 0
    rows_at_once(parquet, BYTES)
    assert 0 < file.count < 10_000  # the column `few` alone


def test_texts_behind_a_row_group_without_rows_are_seen() -> None:
    file, table = Counted(), TABLES["repeated texts"]
    with pq.ParquetWriter(file, table.schema) as writer:
        writer.write_table(table[:0])
        writer.write_table(table)
    parquet = pq.ParquetFile(file)
    assert parquet.metadata.row_group(0).num_rows == 0
    assert next(parquet.iter_batches(rows_at_once(parquet, BYTES))).nbytes <= BYTES * 2


@pytest.mark.parametrize("rows", [0, 3])
def test_files_without_rows_or_values_have_a_batch_size(rows: int) -> None:
    parquet = pq.ParquetFile(written(pa.table({"t": pa.nulls(rows, pa.string())})))
    assert sum(batch.num_rows for batch in parquet.iter_batches(rows_at_once(parquet, BYTES))) == rows
