"""Writes one task's rows into closed parts and a receipt: the file sink's pre-commit in executors.

Rows keep the Arrow schema in which they arrive. A part is created with its first row under a unique name and is never
renamed. The task either closes it or removes it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from lakesink.rows.texts import check_texts
from lakesink.sinks.staged.part_files import OpenPart
from lakesink.sinks.staged.part_receipt import Part, PartsReceipt, encode_parts, new_part_name
from lakesink.sinks.staged.part_schema import check_part_schema
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol.events import FileClosing

ROW_GROUP_BYTES = 128 * 1024 * 1024
"""Arrow memory that a task collects before it writes a row group."""


@dataclass(frozen=True, slots=True)
class PartsPlan:
    """The driver's instructions for one batch's tasks: no client and no secret. Parts' names start with `stem`."""

    folder: str
    stem: str
    batch_id: int
    codec: str
    target_file_size_bytes: int


@dataclass(frozen=True, slots=True)
class PartsWriter:
    """Writes one task's rows under a plan; see `lakesink_protocol.two_phase.TaskWriter`."""

    plan: PartsPlan

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Write one task's rows and return its encoded receipt."""
        parts = _Parts(self.plan, task)
        rows = 0
        try:
            for batch in batches:
                check_texts(batch, rows)
                rows += batch.num_rows
                if batch.num_rows:
                    parts.add(batch)
            closed = parts.close()
        except BaseException:  # any end of the task must remove its open part; it is raised again
            parts.abandon()
            raise
        return encode_parts(PartsReceipt(task, rows, closed))


@dataclass(slots=True)
class _Parts:
    """A task's parts, of which at most one is open."""

    plan: PartsPlan
    task: int
    _open: OpenPart | None = field(default=None, init=False)
    _closed: list[Part] = field(default_factory=list, init=False)
    _held: list[pa.RecordBatch] = field(default_factory=list, init=False)
    _held_bytes: int = field(default=0, init=False)

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes >= min(ROW_GROUP_BYTES, self.plan.target_file_size_bytes):
            self._flush()

    def close(self) -> tuple[Part, ...]:
        self._flush()
        self._finish()
        return tuple(self._closed)

    def abandon(self) -> None:
        if self._open is not None:
            self._open.abandon()

    def _flush(self) -> None:
        if not self._held:
            return
        rows = pa.Table.from_batches(self._held)
        self._held, self._held_bytes = [], 0
        if self._open is None:
            check_part_schema(rows.schema)
            name = new_part_name(self.plan.stem, self.task)
            self._open = OpenPart(f"{self.plan.folder}/{name}", rows.schema, self.plan.codec)
        self._open.write_row_group(rows)
        if self._open.size_bytes >= self.plan.target_file_size_bytes:
            self._finish()

    def _finish(self) -> None:
        if self._open is not None:
            LISTENERS(FileClosing(self.plan.batch_id))  # the listeners of the driver do not exist in an executor
            self._closed.append(self._open.close())
            self._open = None
