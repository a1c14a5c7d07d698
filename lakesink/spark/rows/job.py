"""Jobs in the executors: the one over a batch's rows, which returns the votes of the tasks, and one over any items."""

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from pyspark import cloudpickle
from pyspark.core.rdd import PipelinedRDD
from pyspark.sql import SparkSession

from lakesink._version import __version__
from lakesink.spark.query import QUERY_ID, RunningQuery
from lakesink.spark.rows.arrow_limits import ArrowBatchLimits
from lakesink.spark.rows.batch_rows import BatchRows, FrameRows, PlanRows, clustered_writer, collected
from lakesink.spark.rows.on_driver import driver_may_write
from lakesink.spark.rows.task import MeasuredBatches, RawBytes, check_versions, first_refusal
from lakesink.spark.rows.task_count import BatchTasks
from lakesink.spark.rows.worker_reuse import make_reuse_cheap
from lakesink.spark.spark_errors import JAVA_ERRORS, QueryStopped, is_interruption, job_error, whole_text
from lakesink_protocol.errors import WriteError
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Vote, Votes, receipts_of

Item = TypeVar("Item")


@dataclass(slots=True)
class RowsJob:
    """Runs writers over the rows of one batch; the two-phase coordinator calls its `write`.

    Attributes:
        frame: The rows as a DataFrame; each call of `write` evaluates it.
        is_stop: True if a JVM error only means that the query was asked to stop.
        plan: The same rows from their query's plan, if available.
        most_rows: Upper bound of the number of rows, if it is known before they are read.
        tasks: Learns from the reports how many tasks a batch is worth.
        seconds: How long all calls of `write` took; None before the first one.
    """

    frame: FrameRows
    limits: ArrowBatchLimits
    is_stop: Callable[[BaseException], bool]
    plan: PlanRows | None = None
    most_rows: int | None = None
    tasks: BatchTasks | None = None
    seconds: float | None = field(default=None, init=False)

    def write(self, writers: Mapping[str, TaskWriter]) -> Votes:
        """Run one job and return its votes. There can be only one writer, which may route rows to others."""
        started = time.monotonic()
        try:
            return self._votes(writers)
        finally:
            self.seconds = (self.seconds or 0.0) + time.monotonic() - started

    def _votes(self, writers: Mapping[str, TaskWriter]) -> Votes:
        if len(writers) != 1:
            raise NotImplementedError(f"one writer a batch, not {len(writers)}")
        [(name, writer)] = writers.items()
        if self.plan is not None and driver_may_write(self.most_rows, self.limits.widest_row_bytes):
            receipts = receipts_of(name, writer, self._write_here(self.plan, writer))
            return Votes.in_order({participant: [receipt] for participant, receipt in receipts.items()})
        rows = self._rows_for(writer)
        try:
            planned, reports = rows.reports(writer, None if self.tasks is None else self.tasks.of)
        except JAVA_ERRORS as error:
            raise self._failure(error) from None
        self.limits.record_width(max((report.widest_row_bytes for report in reports), default=0))
        if self.tasks is not None:
            self.tasks.record(sum(one.arrow_bytes for one in reports), sum(one.seconds for one in reports))
        if refusal := first_refusal((one.task, one.refusal) for one in reports):
            raise job_error(refusal)
        votes = [Vote(one.task, receipts_of(name, writer, one.receipt), one.version) for one in reports]
        return Votes(planned, votes, __version__)

    def read(self) -> None:
        """Run the query without writing, because reading its rows updates Spark's state stores for the batch."""
        try:
            self.frame.frame._jdf.queryExecution().toRdd().count()  # an action that accepts every column name
        except JAVA_ERRORS as error:
            if self.is_stop(error):
                raise QueryStopped from None
            raise WriteError.of("STATE_BEHIND", what=job_error(whole_text(error)).what) from None

    def _rows_for(self, writer: TaskWriter) -> BatchRows:
        """The query's plan, unless the writer wants a shuffle; a batch that is worth one task needs none."""
        shuffles = clustered_writer(writer) is not None
        if shuffles and self.tasks is not None:
            shuffles = self.tasks.of(max((self.plan or self.frame).partitions(), self.tasks.count.cores)) != 1
        if self.plan is not None and not shuffles:
            return self.plan
        self.limits.apply()
        return self.frame if shuffles else replace(self.frame, shuffles=False)

    def _write_here(self, plan: PlanRows, writer: TaskWriter) -> bytes:
        """Write all rows in the driver, with the writer and the receipt of a task."""
        try:
            rows = MeasuredBatches(list(plan.gathered()))
        except JAVA_ERRORS as error:
            raise self._failure(error) from None
        receipt = writer.write(0, iter(rows))
        self.limits.record_width(rows.widest_row_bytes)
        return receipt

    def _failure(self, error: Exception) -> Exception:
        return QueryStopped() if self.is_stop(error) else job_error(whole_text(error))


@dataclass(frozen=True, slots=True)
class Executors:
    """The executors of a session."""

    session: SparkSession = field(repr=False)

    @classmethod
    def of(cls, session: SparkSession | None) -> "Executors | None":
        """Those of the session, or of the active one; None without any."""
        found = session or SparkSession.getActiveSession()
        return None if found is None else cls(found)

    def __call__(self, function: Callable[[Item], bytes], items: Sequence[Item]) -> list[bytes]:
        """The results in the order of the items; function and items can be pickled.

        Raises:
            LakesinkError: The function failed for an item.
            QueryStopped: The query was asked to stop meanwhile.
        """
        if not items:
            return []
        shipped = cloudpickle.dumps(function)  # type: ignore[no-untyped-call] # PySpark's copy has no types
        sent = self.session.sparkContext.parallelize([pickle.dumps(item) for item in items], len(items))
        results: PipelinedRDD[Any, Any] = PipelinedRDD(sent, partial(apply_to_items, __version__, shipped))
        results._jrdd_deserializer = RawBytes()  # else PySpark would unpickle results, which is unsafe
        try:
            return collected(results)
        except JAVA_ERRORS as error:
            query_id = self.session.sparkContext.getLocalProperty(QUERY_ID)  # of the streaming query of this thread
            if query_id is not None and (is_interruption(error) or RunningQuery(self.session, query_id).was_stopped()):
                raise QueryStopped from None
            raise job_error(whole_text(error)) from None


def apply_to_items(version: str, function: bytes, _: int, items: Iterable[bytes]) -> Iterator[bytes]:
    """The part of one task. It compares versions before it unpickles the function, whose classes may differ."""
    make_reuse_cheap()
    check_versions(version)
    apply: Callable[[Any], bytes] = pickle.loads(function)
    for item in items:
        yield apply(pickle.loads(item))
