"""Writes one task's rows into closed Parquet files and returns a receipt. Runs in executors, before the pre-commit.

Imports PyArrow and `pyiceberg_core`, never PyIceberg or PySpark, and keeps no state between calls.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakesink.decode.documents import check_documents
from lakesink.parquet.partitions import source_paths
from lakesink.parquet.side_file import SideFile
from lakesink.rows.expectations import Expected, Marks
from lakesink.rows.libraries import check_library
from lakesink.rows.plan import WritePlan
from lakesink.rows.schema import parse_schema
from lakesink.rows.side_rows import SidePlan
from lakesink.rows.task_errors import rows_differ
from lakesink.task.task_files import TaskFiles, packed, unpacked
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
        receipt, _ = write_rows(self, None, task, batches)
        return receipt


@dataclass(frozen=True, slots=True)
class QuarantiningTaskWriter:
    """Writes one task's rows, and as dead letters those that cannot be written.

    See `lakesink_protocol.two_phase.RoutingWriter`.
    """

    rows: ParquetTaskWriter
    letters: SidePlan

    @property
    def clustered_by(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """As without dead letters."""
        return self.rows.clustered_by

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Write one task's rows and return its two encoded receipts as one text of bytes."""
        receipt, of_letters = write_rows(self.rows, self.letters, task, batches)
        return packed(receipt, of_letters)

    def receipts(self, written: bytes) -> Mapping[str, bytes]:
        """The two receipts."""
        return unpacked(written, self.letters)


def check_columns(incoming: pa.Schema, plan: WritePlan) -> None:
    """Check before a job that rows of this schema can be written; tasks check the values."""
    check_library("pyarrow", pa.__version__)
    schema = parse_schema(plan.schema_json)
    if plan.decode:
        check_documents(incoming, schema, plan)
    else:
        alignment_of(incoming, schema, plan)


def write_rows(
    writer: ParquetTaskWriter, letters_plan: SidePlan | None, task: int, batches: Iterator[pa.RecordBatch]
) -> tuple[bytes, bytes]:
    """Write rows and dead letters; returns both receipts, the second one empty without a plan for it."""
    plan = writer.plan
    files = TaskFiles(plan, task)
    letters = None if letters_plan is None else TaskLetters.of(letters_plan, task, documents=plan.decode is not None)
    rows = TaskRows(plan, files.schema, task, files.sources, Marks(writer.expected), letters)
    written: list[TaskFiles | SideFile] = [files, rows.left]
    written += [] if letters is None else [letters.files]
    try:
        for batch in rows.aligned(batches):
            files.add(batch)
        if not rows.refuse:
            for each in written:
                each.close()
    except BaseException:  # any end of the task must remove its open files; it is raised again
        _abandon(written)
        raise
    if rows.refuse:
        _abandon(written)
        return encode(rows.head), b"" if letters is None else encode(letters.head)
    found = files.record_count + rows.aside + rows.left.rows
    if found != rows.count:
        raise rows_differ(rows.count, found)
    return files.receipt(rows.head), b"" if letters is None else letters.files.receipt(letters.head)


def _abandon(written: Sequence[TaskFiles | SideFile]) -> None:
    for files in written:
        files.abandon()
