"""Writes one task's rows into closed Parquet files and returns a receipt. Runs in executors, before the pre-commit.

Imports PyArrow and `pyiceberg_core`, never PyIceberg or PySpark, and keeps no state between calls.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lakesink.decode.documents import check_documents
from lakesink.parquet.partitions import source_paths
from lakesink.rows.expectations import Expected, Marks
from lakesink.rows.libraries import check_library
from lakesink.rows.plan import WritePlan
from lakesink.rows.schema import parse_schema
from lakesink.rows.side_rows import SidePlan
from lakesink.rows.task_errors import rows_differ
from lakesink.task.task_files import TaskFiles, TaskOutput, whole_or_abandoned
from lakesink.task.task_rows import TaskLetters, TaskRows, alignment_of
from lakesink_protocol.receipt import encode


@dataclass(frozen=True, slots=True)
class ParquetTaskWriter:
    """Writes one task's rows under a plan; see `lakesink_protocol.two_phase.TaskWriter`."""

    plan: WritePlan
    expected: tuple[Expected, ...] = ()

    @property
    def clustered_by(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """Path and transform of the partition fields, if one task should get all rows of a partition.

        Without buckets: Spark has no expression for them, and a shuffle by nothing would only make more files.
        """
        if not self.plan.hash_distribution or self.plan.decode:
            return ()
        found = source_paths(parse_schema(self.plan.schema_json), self.plan.partition_fields)
        return tuple((path, transform) for path, transform in found if not transform.startswith("bucket"))

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Write one task's rows and return its encoded receipt.

        Every file in the receipt is closed and has as many rows as were written. A receipt refuses the batch if a
        malformed document, or a row that does not meet an expectation, must fail it. After a failure, files that were
        never closed are removed; closed files stay unreferenced.
        """
        return self.write_both(task, batches, None)[0]

    def write_both(self, task: int, batches: Iterator[pa.RecordBatch], side: SidePlan | None) -> tuple[bytes, bytes]:
        """Write rows, and as dead letters those that cannot be written; see `WritesBeside`."""
        plan = self.plan
        files = TaskFiles(plan, task)
        letters = None if side is None else TaskLetters.of(side, task, documents=plan.decode is not None)
        rows = TaskRows(plan, files.schema, task, files.sources, Marks(self.expected), letters)
        written: list[TaskOutput] = [files, rows.left, *([] if letters is None else [letters.files])]
        with whole_or_abandoned(written, lambda: rows.refuse):
            for batch in rows.aligned(batches):
                files.add(batch)
        if rows.refuse:
            return encode(rows.head), b"" if letters is None else encode(letters.head)
        found = files.record_count + rows.aside + rows.left.rows
        if found != rows.count:
            raise rows_differ(rows.count, found)
        return files.receipt(rows.head), b"" if letters is None else letters.files.receipt(letters.head)


def check_columns(incoming: pa.Schema, plan: WritePlan) -> None:
    """Check before a job that rows of this schema can be written; tasks check the values."""
    check_library("pyarrow", pa.__version__)
    schema = parse_schema(plan.schema_json)
    if plan.decode:
        check_documents(incoming, schema, plan)
    else:
        alignment_of(incoming, schema, plan)
