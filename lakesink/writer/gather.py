"""Rows gathered until they make good row groups: Spark sends ten thousand at a time, Parquet wants far more.

Memory is bounded for all partitions together. When it is full the largest partitions are written until half of it is
free, so small ones get a chance to grow.
"""

from collections.abc import Sequence

import pyarrow as pa

from lakesink.writer.files import DataFiles
from lakesink.writer.partitions import Source, split
from lakesink.writer.plan import WritePlan


class Gatherer:
    """Holds rows back from a task's files until there are enough.

    Args:
        plan: Bounds of memory and of row groups.
        schema: Schema of the batches to come.
        sources: The partition fields.
        files: Where rows go.
    """

    def __init__(self, plan: WritePlan, schema: pa.Schema, sources: Sequence[Source], files: DataFiles) -> None:
        self._limit = plan.buffer_bytes if sources else min(plan.buffer_bytes, plan.parquet.row_group_size_bytes)
        self._schema = schema
        self._sources = sources
        self._files = files
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows; writes what is too much.

        Raises:
            WriteError: The storage failed.
        """
        size = batch.nbytes
        if self._batches and self._bytes + size > self._limit:
            self._relieve()
        self._batches.append(batch)
        self._bytes += size

    def flush(self) -> None:
        """Write all that is held, each partition's last rows into a file that is then closed.

        Partitions with an open file come first: the others might push it out.

        Raises:
            WriteError: The storage failed.
        """
        parts = split(self._take(), self._sources) if self._batches else []
        for part in sorted(parts, key=lambda part: not self._files.is_open(part.partition)):
            self._files.write(part.partition, part.rows)
            self._files.finish(part.partition)

    def _relieve(self) -> None:
        """Write the largest partitions; what remains is copied, so that it does not keep the rest in memory."""
        kept = []
        held = self._bytes
        for part in sorted(split(self._take(), self._sources), key=lambda part: part.rows.nbytes, reverse=True):
            if held > self._limit // 2 or not self._sources:
                held -= part.rows.nbytes
                self._files.write(part.partition, part.rows)
            else:
                kept.append(part.rows)
        if kept:
            self._batches = pa.concat_tables(kept).combine_chunks().to_batches()
            self._bytes = sum(batch.nbytes for batch in self._batches)

    def _take(self) -> pa.Table:
        table = pa.Table.from_batches(self._batches, schema=self._schema)
        self._batches, self._bytes = [], 0
        return table
