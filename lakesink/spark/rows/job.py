"""The one job over a batch's rows: ships a task writer to the executors, and returns the votes of the tasks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lakesink import __version__
from lakesink.spark.failures import JAVA_ERRORS, QueryStopped, job_error, whole_text
from lakesink.spark.rows.batch_rows import BatchRows, FrameRows, PlanRows, clustered_by
from lakesink.spark.rows.hop import HopTuning
from lakesink.spark.rows.small import driver_may_write
from lakesink.spark.rows.task import Measured, TaskReport
from lakesink_protocol.errors import WriteError
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Vote, Votes


@dataclass(frozen=True, slots=True)
class RowsJob:
    """Runs writers over the rows of one batch; the two-phase coordinator calls its `write`.

    Attributes:
        frame: The rows as a DataFrame; each call of `write` evaluates it.
        was_stopped: True if a JVM error only means that the query was asked to stop.
        plan: The same rows from their query's plan, if available.
        most_rows: Upper bound of the number of rows, if it is known before they are read.
    """

    frame: FrameRows
    tuning: HopTuning
    was_stopped: Callable[[BaseException], bool]
    plan: PlanRows | None = None
    most_rows: int | None = None

    def write(self, writers: Mapping[str, TaskWriter]) -> Votes:
        """Run one job and return its votes. Rows are not routed, so there can be only one participant."""
        if len(writers) != 1:
            raise NotImplementedError(f"rows are not routed yet: one participant a batch, not {len(writers)}")
        [(name, writer)] = writers.items()
        if self.plan is not None and driver_may_write(self.most_rows, self.tuning.widest_row_bytes):
            return Votes.in_order({name: [self._write_here(self.plan, writer)]})
        planned, reports = self._run(self._rows_for(writer), writer)
        self.tuning.seen(max((report.widest_row_bytes for report in reports), default=0))
        cast = [Vote(report.task, {name: report.receipt}, report.version) for report in reports]
        return Votes(planned, cast, __version__)

    def read(self) -> None:
        """Run the query without writing: Spark's state stores change as rows are read, and must follow each batch."""
        try:
            self.frame.frame._jdf.queryExecution().toRdd().count()  # an action that needs no column to have a good name
        except JAVA_ERRORS as error:
            if self.was_stopped(error):
                raise QueryStopped from None
            raise _state_behind(whole_text(error)) from None

    def _rows_for(self, writer: TaskWriter) -> BatchRows:
        """The query's plan, unless the writer wants a shuffle or an Arrow batch needs a limit of its bytes."""
        if self.plan is not None and self.tuning.rows_may_bound and not clustered_by(writer):
            return self.plan
        self.tuning.apply()
        return self.frame

    def _write_here(self, plan: PlanRows, writer: TaskWriter) -> bytes:
        """One task's work in the driver: same writer, same receipt."""
        try:
            rows = Measured(list(plan.gathered()))
        except JAVA_ERRORS as error:
            raise self._failure(error) from None
        receipt = writer.write(0, iter(rows))
        self.tuning.seen(rows.widest_row_bytes)
        return receipt

    def _run(self, rows: BatchRows, writer: TaskWriter) -> tuple[int, list[TaskReport]]:
        try:
            return rows.reports(writer)
        except JAVA_ERRORS as error:
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> Exception:
        return QueryStopped() if self.was_stopped(error) else job_error(whole_text(error))


def _state_behind(text: str) -> WriteError:
    return WriteError(
        "STATE_BEHIND",
        f"The batch is in the table, but Spark's state did not follow it: {job_error(text).what}",
        data="This batch is in the table, once.",
        action="Correct what the message says and start the query again: the batch is read again, and not written.",
    )
