"""One task in an executor's Python: the version handshake, the writer, and its report as one row.

This module is pickled by reference and must import in a bare executor: PyArrow, PySpark's task context and lakesink.
"""

import pickle
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.serializers import FramedSerializer

from lakesink._version import __version__
from lakesink.rows.batches import joined
from lakesink.rows.libraries import check_library
from lakesink.spark.rows.transport import Transport
from lakesink.spark.rows.worker_reuse import make_reuse_cheap
from lakesink_protocol.errors import WriteError
from lakesink_protocol.two_phase import TaskWriter

JOINED_ROWS, JOINED_BYTES = 8192, 4 * 1024 * 1024
"""Most rows and bytes of Arrow batches that are joined."""
MEASURED_ROWS = 8192
_PREFIX = struct.Struct("<Ii")
"""Of a message of an Arrow stream: a mark, and the length of its head. A schema has no more than its head."""
_REPORT_HEAD = struct.Struct(">iqqdii")
OF_ROWS = frozenset(
    f"LAKESINK_{code}"
    for code in (
        "KAFKA_RECORD_TOO_LARGE",
        "KAFKA_ROW_REFUSED",
        "KEY_MISSING",
        "KEY_NULL",
        "KEY_TWICE",
        "LOSSY_VALUE",
        "NULL_IN_REQUIRED",
        "OPERATION_UNKNOWN",
        "PARTITION_VALUE_UNFIT",
        "SCHEMA_MISMATCH",
        "SEQUENCE_NULL",
        "SEQUENCE_TIED",
        "TEXT_INVALID",
        "TRUNCATE",
    )
)
"""Errors for rows, with which every run of the task would end. Spark runs a task again after all others."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The result of one task.

    Attributes:
        version: The executor's lakesink.
        widest_row_bytes: The largest mean row of an Arrow batch.
        arrow_bytes: All Arrow batches together.
        seconds: How long the task took, with the query's own work on its rows.
        receipt: The writer's receipt.
        refusal: The text of the error for the task's rows, see `refused_or`; empty if there was none.
    """

    task: int
    version: str
    widest_row_bytes: int
    arrow_bytes: int
    seconds: float
    receipt: bytes
    refusal: str = ""

    def encoded(self) -> bytes:
        """The report as bytes, for `decoded`."""
        texts = self.version.encode(), self.refusal.encode()
        head = (self.task, self.widest_row_bytes, self.arrow_bytes, self.seconds, *map(len, texts))
        return b"".join((_REPORT_HEAD.pack(*head), *texts, self.receipt))

    @classmethod
    def decoded(cls, encoded: bytes) -> "TaskReport":
        """The report in the bytes of `encoded`."""
        task, widest_row_bytes, arrow_bytes, seconds, *lengths = _REPORT_HEAD.unpack_from(encoded)
        start = _REPORT_HEAD.size
        texts = []
        for length in lengths:
            texts.append(encoded[start : start + length].decode())
            start += length
        version, refusal = texts
        return cls(task, version, widest_row_bytes, arrow_bytes, seconds, encoded[start:], refusal)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes a task's rows. It compares versions before it unpickles the writer, whose classes may differ."""

    version: str
    transport: Transport
    writer: bytes = field(repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for `mapInArrow`: yields the encoded report of the task as one row."""
        yield pa.RecordBatch.from_pydict({"report": [self.report(batches)]})

    def report(self, batches: Iterable[pa.RecordBatch]) -> bytes:
        """Write the task's rows; returns its report, encoded."""
        started = time.monotonic()
        make_reuse_cheap()
        check_versions(self.version)
        writer: TaskWriter = pickle.loads(self.writer)
        context = TaskContext.get()
        assert context is not None
        rows, task = MeasuredBatches(batches), context.partitionId()
        joined_rows = self.transport.decoded(joined(rows, JOINED_BYTES, JOINED_ROWS))
        receipt, refusal = refused_or(lambda: writer.write(task, joined_rows), rows.batches)
        measured = (rows.widest_row_bytes, rows.arrow_bytes, time.monotonic() - started)
        return TaskReport(task, __version__, *measured, receipt, refusal).encoded()


def first_refusal(tasks: Iterable[tuple[int, str]]) -> str:
    """The text of the first of these tasks that has one, see `refused_or`; empty if none has."""
    return next((text for _, text in sorted(tasks) if text), "")


def refused_or(write: Callable[[], bytes], batches: Iterable[pa.RecordBatch]) -> tuple[bytes, str]:
    """The receipt of a task, or the text of the error for its rows.

    An error that the task raised would be in the executor's log with its trace, and a cluster would run the task four
    times. The rest of the rows is read all the same: Spark ends a Python process that leaves a part of its input.
    """
    try:
        return write(), ""
    except WriteError as error:
        if error.code not in OF_ROWS:
            raise
        deque(batches, maxlen=0)
        return b"", str(error)


def write_messages(task: WriteTask, schema: pa.Schema, _: int, messages: Iterable[bytes]) -> Iterator[bytes]:
    """The function for an RDD of Arrow streams: yields the encoded report of the task."""
    yield task.report(read_messages(messages, schema))


def read_messages(messages: Iterable[bytes], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Record batches from Arrow streams of one each, whose own schema is skipped; shares their memory."""
    for message in messages:
        begin = _PREFIX.size + _PREFIX.unpack_from(message)[1]
        yield pa.ipc.read_record_batch(pa.py_buffer(message).slice(begin), schema)


class RawBytes(FramedSerializer):
    """Passes bytes between the JVM and Python without pickling."""

    def dumps(self, obj: bytes) -> bytes:
        """The same bytes."""
        return obj

    def loads(self, obj: bytes) -> bytes:
        """The same bytes."""
        return obj


@dataclass(slots=True)
class MeasuredBatches:
    """A task's Arrow batches on their way to the writer, with all bytes so far, and the largest mean row.

    A mean is of `MEASURED_ROWS` or more: one wide row in a small message says little of later batches.
    """

    batches: Iterable[pa.RecordBatch]
    widest_row_bytes: int = field(default=0, init=False)
    arrow_bytes: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        rows = size = 0
        for batch in self.batches:
            more = batch.get_total_buffer_size() if batch.num_rows else 0
            self.arrow_bytes += more
            rows, size = rows + batch.num_rows, size + more
            if rows >= MEASURED_ROWS:
                self._record(rows, size)
                rows = size = 0
            yield batch
        if rows:
            self._record(rows, size)

    def _record(self, rows: int, size: int) -> None:
        self.widest_row_bytes = max(self.widest_row_bytes, -(-size // rows))


def check_versions(driver: str) -> None:
    """Refuse another lakesink than the driver's, whose pickled classes may differ, and an old PyArrow."""
    if driver != __version__:
        raise WriteError.of("EXECUTOR_PYTHON.version", driver=driver, version=__version__)
    check_library("pyarrow", pa.__version__)
