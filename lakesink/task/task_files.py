"""The data files of one table that a task writes, and their receipt. Runs in executors."""

from dataclasses import dataclass, field

import pyarrow as pa

from lakesink.parquet.files import DataFiles
from lakesink.parquet.parquet import FileFormat
from lakesink.parquet.partitions import Source, partition_sources
from lakesink.parquet.row_buffer import RowBuffer
from lakesink.parquet.statistics import columns
from lakesink.rows.plan import WritePlan
from lakesink.rows.schema import Struct, arrow_schema, leaves, parse_schema
from lakesink_protocol.receipt import Receipt, ReceiptEncoder


@dataclass(slots=True)
class TaskFiles:
    """Collects rows with the table's columns; ends with `finish` or `abandon`."""

    plan: WritePlan
    task: int
    schema: Struct = field(init=False)
    _files: DataFiles = field(init=False)
    _buffer: RowBuffer = field(init=False)
    _receipt: ReceiptEncoder = field(default_factory=ReceiptEncoder)

    def __post_init__(self) -> None:
        plan, schema = self.plan, parse_schema(self.plan.schema_json)
        form = FileFormat(plan, arrow_schema(schema, annotated=True), columns(leaves(schema), plan.metrics_modes))
        sources = partition_sources(schema, plan.partition_fields)
        self.schema = schema
        self._files = DataFiles(form, sources, self.task, self._receipt.add)
        self._buffer = RowBuffer(self._files)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The source columns of the partition fields."""
        return tuple(self._files.sources)

    @property
    def record_count(self) -> int:
        """Rows in closed files."""
        return self._receipt.record_count

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        self._buffer.add(rows)

    def close(self) -> None:
        """Write all rows and close the files."""
        self._buffer.flush()
        self._files.close()

    def abandon(self) -> None:
        """Remove the files that were never closed; closed files stay unreferenced. Never raises."""
        self._files.abandon()

    def receipt(self, head: Receipt) -> bytes:
        """The encoded receipt with all closed files; `head` lists none."""
        return self._receipt.finish(head)
