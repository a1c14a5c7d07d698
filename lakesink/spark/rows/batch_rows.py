"""The rows of a batch in Spark, and the two ways that a task writer gets them.

`FrameRows` maps a DataFrame, by public means alone. Within `foreachBatch` a DataFrame is made anew over the rows of the
stream's own plan, which copies each of them, column by column, and is planned anew in every batch; `PlanRows` has
them from that plan as they are, as the Arrow batches that Spark itself makes for its own `toArrow`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import cloudpickle
from pyspark.core.rdd import RDD, PipelinedRDD
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructType
from pyspark.util import local_connect_and_auth

from lakesink import __version__
from lakesink.spark.failures import NOT_IN_TABLE
from lakesink.spark.rows.distribution import ClusteredBy, distributed
from lakesink.spark.rows.hop import HopTuning
from lakesink.spark.rows.schema import arrow_schema
from lakesink.spark.rows.shape import Shape
from lakesink.spark.rows.task import Messages, Vote, WriteMessages, WriteTask, read_messages
from lakesink_protocol.errors import WriteError
from lakesink_protocol.two_phase import TaskWriter

_VOTE = StructType().add("task", IntegerType()).add("widest_row_bytes", LongType()).add("receipt", BinaryType())
_LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"


class BatchRows(Protocol):
    """Rows that a writer can be run over."""

    def votes(self, writer: TaskWriter) -> list[Vote]:
        """Run the writer over the rows, one job, and return the vote of every task, in order.

        Raises:
            WriteError: A vote is missing or doubled.
        """


@dataclass(frozen=True, slots=True)
class FrameRows:
    """Rows of a DataFrame, evaluated once a call.

    Attributes:
        frame: The DataFrame, in the shape in which it travels.
        shape: What was changed for that.
    """

    frame: DataFrame
    shape: Shape

    def votes(self, writer: TaskWriter) -> list[Vote]:
        """See `BatchRows`."""
        rows = distributed(self.frame, clustered_by(writer), self.shape.names)
        mapped = rows.mapInArrow(_task(writer, self.shape), _VOTE)
        votes = [Vote(row.task, row.widest_row_bytes, bytes(row.receipt)) for row in mapped.collect()]
        return complete(votes, _planned_tasks(mapped))


@dataclass(frozen=True, slots=True)
class PlanRows:
    """Rows of a micro-batch, from the physical plan that its query runs for it.

    What bounds Spark's Arrow batches here is their number of rows alone: `lakesink.spark.rows.hop`.

    Attributes:
        frame: What `foreachBatch` was given: the same rows.
        shape: What was changed for their way.
        plan: The plan, in the JVM.
        schema: Of the Arrow batches, see `arriving_schema`.
        tuning: Bounds the number of their rows.
    """

    frame: DataFrame
    shape: Shape
    plan: Any
    schema: pa.Schema
    tuning: HopTuning

    def votes(self, writer: TaskWriter) -> list[Vote]:
        """See `BatchRows`."""
        messages = self._messages()
        written: PipelinedRDD[Any, Any] = PipelinedRDD(messages, WriteMessages(_task(writer, self.shape), self.schema))
        written._jrdd_deserializer = Messages()  # noqa: SLF001 - or votes would be pickles, which nobody should open
        return complete([Vote.decoded(vote) for vote in _collected(written)], messages.getNumPartitions())

    def gathered(self) -> Iterator[pa.RecordBatch]:
        """All rows, in this process, as they were before their way."""
        return self.shape.restored(read_messages(_collected(self._messages()), self.schema))

    def _messages(self) -> "RDD[bytes]":
        """Arrow batches as Spark writes them between processes, without their schema."""
        self.plan.execute()  # starts no job; functions of the stream's own take the user's settings here
        with self.tuning.records_bounded():
            batches = self.frame._jdf.toArrowBatchRdd(self.plan)  # noqa: SLF001 - what PySpark's own toArrow calls
        return RDD(batches.toJavaRDD(), self.frame.sparkSession.sparkContext, Messages())


def arriving_schema(rows: DataFrame) -> pa.Schema:
    """Schema of the Arrow batches that Spark makes of a micro-batch: the same for all of one run.

    Raises:
        WriteError: A column has a type that Spark does not hand to Arrow.
    """
    large = str(rows.sparkSession.conf.get(_LARGE_TYPES)).lower() == "true"
    return arrow_schema(rows.schema, large=large)


def clustered_by(writer: TaskWriter) -> ClusteredBy:
    """What rows a writer wants to have in one task; nothing if it does not mind."""
    wanted: ClusteredBy = getattr(writer, "clustered_by", ())
    return wanted


def complete(votes: Sequence[Vote], planned_tasks: int) -> list[Vote]:
    """The votes in task order, if there is exactly one of every task.

    Raises:
        WriteError: A vote is missing, doubled, or of a task that was not planned.
    """
    ordered = sorted(votes, key=lambda vote: vote.task)
    if [vote.task for vote in ordered] != list(range(planned_tasks)):
        raise WriteError(
            "VOTES_INCOMPLETE",
            f"Spark planned {planned_tasks} tasks, {len(votes)} receipts came from "
            f"{len({vote.task for vote in votes})} of them.",
            data=NOT_IN_TABLE,
            action="Start the query again; if it happens again, report it with the driver's log.",
        )
    return ordered


def _collected(encoded: "RDD[bytes]") -> list[bytes]:
    """All elements, or an error: `RDD.collect` takes a connection that breaks for the end of what there is.

    Raises:
        Py4JJavaError: The job failed, or not all was sent.
        WriteError: The JVM is gone.
    """
    assert encoded.ctx._jvm is not None  # noqa: SLF001 - as below
    try:
        sender = encoded.ctx._jvm.PythonRDD.collectAndServe(encoded._jrdd.rdd())  # noqa: SLF001 - what RDD.collect calls
        stream, connection = local_connect_and_auth(sender[0], sender[1])
        with connection, stream:
            connection.settimeout(None)  # the job may take its time
            found = list(Messages().load_stream(stream))  # type: ignore[no-untyped-call] # PySpark's has no types
            sender[2].getResult()  # waits until all was sent, and raises if it was not
    except Py4JJavaError:
        raise
    except (ConnectionError, Py4JError):  # no exception of Java's: nobody has answered
        raise _spark_gone() from None
    return found


def _spark_gone() -> WriteError:
    return WriteError(
        "SPARK_GONE",
        "The driver's JVM ended while it ran the batch.",
        data=NOT_IN_TABLE,
        action="Start the driver again: the batch is written then. If the system killed it for its memory, give it "
        "more, or less to do at once.",
    )


def _task(writer: TaskWriter, shape: Shape) -> WriteTask:
    shipped = cloudpickle.dumps(writer)  # type: ignore[no-untyped-call] # a copy without types; it takes a notebook's classes
    return WriteTask(__version__, shape, shipped)


def _planned_tasks(mapped: DataFrame) -> int:
    """Tasks of the job that just ran: its plan keeps the RDD, so this starts nothing."""
    plan = mapped._jdf.queryExecution().executedPlan()  # noqa: SLF001 - PySpark does not tell its number of tasks
    return int(plan.execute().getNumPartitions())
