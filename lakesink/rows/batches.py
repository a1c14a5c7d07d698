"""The size of Arrow batches: each one has a cost, for each column or for each call of a decoder, and needs memory."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:  # the import takes time, and most tasks do without it
    import pyarrow.parquet as pq

_FIRST_ROWS, _MOST_ROWS = 16, 65_536


def rows_at_once(parquet: "pq.ParquetFile", most_bytes: int) -> int:
    """How many rows of a file to read into one batch of about so many bytes.

    The width is that of the first rows, or that of the footer if it is greater. A footer has the size of encoded
    values, and a file can repeat a long one.
    """
    metadata = parquet.metadata
    encoded = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    # Of one row group: a reader that buffers would fetch all of them.
    first = next(parquet.iter_batches(_FIRST_ROWS, row_groups=[0]), None) if metadata.num_rows else None
    width = max(first.nbytes / first.num_rows, encoded / metadata.num_rows) if first is not None else 1
    return int(min(max(most_bytes / max(width, 1), 1), _MOST_ROWS))


def joined(
    batches: Iterable[pa.RecordBatch], most_bytes: int, most_rows: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches, each within these limits; a batch that is as large by itself is not copied."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        more = batch.get_total_buffer_size()
        too_many = most_rows is not None and rows + batch.num_rows > most_rows
        if held and (too_many or size + more > most_bytes):
            yield _one(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + more
    if held:
        yield _one(held)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
