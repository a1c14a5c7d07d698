"""The size of Arrow batches: each one has a cost, for each column or for each call of a decoder, and needs memory."""

from collections.abc import Iterable, Iterator

import pyarrow as pa


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
