"""What ``format("lakesink")`` sends to executors, to write and to read. No PyIceberg: executors may lack it."""

import pickle
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource

from lakesink._version import __version__
from lakesink.read.file_rows import RowsPart
from lakesink.rows.changed_rows import DELETE_MARK
from lakesink.spark.rows.task import check_versions, refused_or
from lakesink.spark.rows.worker_reuse import make_reuse_cheap
from lakesink_protocol.errors import WriteError
from lakesink_protocol.two_phase import TaskWriter

BATCH_ID = "streaming.sql.batchId"


class RowsPartition(datasource.InputPartition):
    """The work of one task, and the lakesink that planned it."""

    def __init__(self, part: RowsPart, version: str) -> None:
        super().__init__(None)
        self.part = part
        self.version = version


class RowsReader(datasource.DataSourceStreamReader):
    """Reads the rows of a task: what executors get instead of the reader that plans."""

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part of a micro-batch."""
        make_reuse_cheap()
        assert isinstance(partition, RowsPartition)
        check_versions(partition.version)
        return partition.part.rows()


def marked_names(names: Sequence[str], deletes: str) -> list[str]:
    """Names of columns, the one that is true for a delete with the name of the mark."""
    return [DELETE_MARK if name == deletes else name for name in names]


@dataclass(frozen=True, slots=True)
class TaskMessage(datasource.WriterCommitMessage):
    """A task's message to the process that commits; `receipt` is None if its planner found nothing to write.

    `refusal` is the text of the error for its rows, if there was one.
    """

    task: int
    version: str
    receipt: bytes | None = field(repr=False)
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """The work of one task, as planned.

    Attributes:
        version: The planner's lakesink, compared before the writer is unpickled.
        batch_id: Batch for which the task was planned; None in a batch write.
        writer: The pickled `TaskWriter`; None if the batch is already in the table, or prepared.
        keeps_state: True if the query keeps state: the task must then read all rows, even if it writes none.
        deletes: Name of the column that is true for a delete; empty if there is none.
    """

    version: str
    batch_id: int | None
    writer: bytes | None = field(repr=False)
    keeps_state: bool = False
    deletes: str = ""

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskMessage:
        """Write a task's rows, or skip them; raises WriteError in another batch than the planned one."""
        make_reuse_cheap()
        check_versions(self.version)
        context = TaskContext.get()
        assert context is not None
        running = context.getLocalProperty(BATCH_ID)
        if self.batch_id is not None and running != str(self.batch_id):
            raise WriteError.of("BATCH_MOVED", running=running, batch_id=self.batch_id)
        if self.writer is None:
            if self.keeps_state:
                deque(batches, maxlen=0)
            return TaskMessage(context.partitionId(), __version__, None)
        writer: TaskWriter = pickle.loads(self.writer)
        task, rows = context.partitionId(), iter(batches)
        return TaskMessage(task, __version__, *refused_or(lambda: writer.write(task, self.marked(rows)), rows))

    def marked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows with their mark of deletes, if a column has one."""
        for batch in batches:
            yield batch.rename_columns(marked_names(batch.schema.names, self.deletes)) if self.deletes else batch


@dataclass
class StreamTask(datasource.DataSourceStreamArrowWriter):
    """The executors' part of a stream's writer."""

    task: PlannedTask

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        return self.task.run(iterator)


@dataclass
class BatchTask(datasource.DataSourceArrowWriter):
    """A batch write, for executors and the committing process; only the latter can import what `committer` needs."""

    task: PlannedTask
    committer: bytes = field(repr=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        return self.task.run(iterator)

    def commit(self, messages: Sequence[datasource.WriterCommitMessage | None]) -> None:
        """Validate the receipts and commit."""
        pickle.loads(self.committer)(messages)
