"""What ``format("lakesink")`` ships to executors. Imports no PyIceberg: it must import in a bare executor."""

import pickle
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from lakesink import __version__
from lakesink.spark.rows.task import check_version, read_archives_once
from lakesink_protocol.errors import WriteError
from lakesink_protocol.two_phase import TaskWriter

BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class TaskMessage(WriterCommitMessage):
    """What one task sends to the process that commits; `receipt` is None if its planner found nothing to write."""

    task: int
    version: str
    receipt: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A task's work, as the planner decided it.

    Attributes:
        version: The planner's lakesink, compared before the writer is unpickled.
        batch_id: Batch that it was planned for; None in a batch write.
        writer: The pickled `TaskWriter`; None if the batch is already in the table, or prepared.
        keeps_state: True if the query keeps state: its rows must be read to the end even if none is written.
    """

    version: str
    batch_id: int | None
    writer: bytes | None = field(repr=False)
    keeps_state: bool = False

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskMessage:
        """Write a task's rows, or skip them; refuses to run in another batch than was planned."""
        read_archives_once()
        check_version(self.version)
        context = TaskContext.get()
        assert context is not None
        self._check_batch(context)
        if self.writer is None:
            if self.keeps_state:
                deque(batches, maxlen=0)
            return TaskMessage(context.partitionId(), __version__, None)
        writer: TaskWriter = pickle.loads(self.writer)
        return TaskMessage(context.partitionId(), __version__, writer.write(context.partitionId(), iter(batches)))

    def _check_batch(self, context: TaskContext) -> None:
        running = context.getLocalProperty(BATCH_ID)
        if self.batch_id is not None and running != str(self.batch_id):
            raise WriteError(
                "BATCH_MOVED",
                f"The task runs in batch {running}, the newest offsets in the checkpoint are those of {self.batch_id}.",
                action="Look for a second query on this checkpoint and stop it; then start the query again.",
            )


@dataclass
class StreamTask(DataSourceStreamArrowWriter):
    """The executors' part of a stream's writer."""

    task: PlannedTask

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """See `PlannedTask.run`."""
        return self.task.run(iterator)


@dataclass
class BatchTask(DataSourceArrowWriter):
    """A batch write, for executors and the committing process; only the latter can import what `committer` needs."""

    task: PlannedTask
    committer: bytes = field(repr=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """See `PlannedTask.run`."""
        return self.task.run(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Validate the receipts and commit."""
        pickle.loads(self.committer)(messages)
