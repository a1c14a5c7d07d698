"""Writes one task's rows into closed Parquet files and returns a receipt. Runs in executors, before the pre-commit.

Imports PyArrow and `pyiceberg_core`, never PyIceberg or PySpark, and keeps no state between calls.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from lakesink.decode.documents import Decoder, check_documents
from lakesink.writer.columns import Alignment, align
from lakesink.writer.expectations import Expected, Marks
from lakesink.writer.files import DataFiles
from lakesink.writer.libraries import check_library
from lakesink.writer.parquet import FileFormat
from lakesink.writer.partitions import partition_sources, source_paths
from lakesink.writer.plan import WritePlan
from lakesink.writer.refusals import rows_differ
from lakesink.writer.row_buffer import RowBuffer
from lakesink.writer.schema import Struct, arrow_schema, leaves, parse_schema
from lakesink.writer.statistics import columns
from lakesink.writer.texts import check_texts
from lakesink_protocol.quality import together
from lakesink_protocol.receipt import Receipt, ReceiptEncoder, encode


@dataclass(frozen=True, slots=True)
class ParquetTaskWriter:
    """Writes one task's rows under a plan; see `lakesink_protocol.two_phase.TaskWriter`."""

    plan: WritePlan
    expected: tuple[Expected, ...] = ()

    @property
    def clustered_by(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """Path and transform of every partition field, if one task should get all rows of a partition."""
        if not self.plan.hash_distribution or self.plan.decode:
            return ()
        return source_paths(parse_schema(self.plan.schema_json), self.plan.partition_fields)

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Write one task's rows and return its encoded receipt.

        Every file in the receipt is closed and has as many rows as were written. A receipt refuses the batch if a
        malformed document, or a row that does not meet an expectation, must fail it. After a failure, files that were
        never closed are removed; closed files stay unreferenced.
        """
        return _write(_Rows(self.plan, parse_schema(self.plan.schema_json), task, Marks(self.expected)), batches)


def check_columns(incoming: pa.Schema, plan: WritePlan) -> None:
    """Check before a job that rows of this schema can be written; tasks check the values."""
    check_library("pyarrow", pa.__version__)
    schema = parse_schema(plan.schema_json)
    if plan.decode:
        check_documents(incoming, schema, plan.decode, plan.rescue_column)
    else:
        _align(incoming, schema, plan)


def _align(incoming: pa.Schema, schema: Struct, plan: WritePlan) -> Alignment:
    return align(incoming, schema, case_sensitive=plan.case_sensitive, ignore_unknown=plan.ignore_unknown)


@dataclass(slots=True)
class _Rows:
    """A task's batches: decoded, aligned with the table and counted."""

    plan: WritePlan
    schema: Struct
    task: int
    marks: Marks
    count: int = 0
    decoder: Decoder | None = None

    @property
    def refuse(self) -> bool:
        """True if what was found in them must fail the batch."""
        return self.marks.refuse or (self.decoder is not None and self.decoder.refuses)

    def aligned(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        alignment: Alignment | None = None
        for batch in self._decoded(batches):
            if alignment is None or not batch.schema.equals(alignment.incoming):
                alignment = _align(batch.schema, self.schema, self.plan)
            if batch.num_rows and not self.marks.refuse:  # a refused batch is only counted
                yield alignment.apply(batch)

    def _decoded(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not self.plan.decode:
            for batch in self._counted(batches):
                check_texts(batch, self.count - batch.num_rows)  # a decoder checks its own texts
                yield batch
            return
        self.decoder = Decoder(self.plan, self.schema, self.task)
        yield from self.decoder.decoded(self._counted(batches))

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.count += batch.num_rows
            yield self.marks.taken_off(batch)


def _write(rows: _Rows, batches: Iterator[pa.RecordBatch]) -> bytes:
    plan, schema, receipt = rows.plan, rows.schema, ReceiptEncoder()
    file_format = FileFormat(plan, arrow_schema(schema, annotated=True), columns(leaves(schema), plan.metrics_modes))
    files = DataFiles(file_format, partition_sources(schema, plan.partition_fields), rows.task, receipt.add)
    try:
        buffer = RowBuffer(files)
        for batch in rows.aligned(batches):
            buffer.add(batch)
        if rows.refuse:
            files.abandon()
            return encode(_head(rows))
        buffer.flush()
        files.close()
    except BaseException:  # any end of the task must remove its open files; it is raised again
        files.abandon()
        raise
    if receipt.record_count != rows.count:
        raise rows_differ(rows.count, receipt.record_count)
    return receipt.finish(_head(rows))


def _head(rows: _Rows) -> Receipt:
    """The receipt without files, which were encoded as they were closed."""
    plan, decoder = rows.plan, rows.decoder
    receipt = Receipt(
        rows.task, rows.count, (), plan.schema_id, rows.marks.quality, refused=rows.refuse, premises=plan.premises
    )
    if decoder is None:
        return receipt
    return replace(
        receipt,
        quality=together([receipt.quality, decoder.quality]),
        misfits=tuple(decoder.misfits),
        documents=decoder.documents,
    )
