"""The function that `foreachBatch` calls: it commits one micro-batch in two phases.

It runs on the driver, on its query's thread, once for each batch and again for each replay. Its state belongs to one
run of one query, so queries in one driver do not affect each other.
"""

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from lakesink.checkpoint.folder import Checkpoint, source_folders
from lakesink.checkpoint.offsets import Offsets
from lakesink.checkpoint.query_facts import Functions, Source
from lakesink.settings.option_types import OutputMode
from lakesink.spark import spark_errors
from lakesink.spark.hadoop import HadoopFiles
from lakesink.spark.query import QUERY_ID, RUN_ID, RunningQuery
from lakesink.spark.query_plan import absolute_checkpoint, functions_of, runs_python, sources_of
from lakesink.spark.report import Reporter, facts_of, report_end, store_facts
from lakesink.spark.rows.arrow_limits import ArrowBatchLimits
from lakesink.spark.rows.batch_rows import FrameRows, PlanRows, arriving_schema, arrow_converter
from lakesink.spark.rows.job import RowsJob
from lakesink.spark.rows.on_driver import most_rows, only_drops_rows
from lakesink.spark.rows.task_count import BatchTasks, TaskCount, closes_readers, input_size
from lakesink.spark.rows.transport import Transport, encode_for_transport
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.events import BatchStarted, Listener, OffsetsRead
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.redact import redact
from lakesink_protocol.two_phase import TaskWriter, TwoPhaseCommitSink
from lakesink_protocol.votes import Votes

_PYTHON = "spark.sql.execution.pyspark.python"
MakeSink = Callable[[SparkSession], TwoPhaseCommitSink[Any, Any]]
"""Builds the sink of a run for the session of its batches."""


@dataclass(slots=True)
class StreamRun:
    """One run of one query, from its start to its end.

    Attributes:
        to_arrow: See `PlanRows`; None if the rows must come from the DataFrame.
        sources: Names of the sources.
        only_drops_rows: True if no row of a source can become more than one row.
        count: Learns how many tasks a batch is worth.
        last: Newest batch of this run and its end offsets: the start of the next batch.
    """

    run_id: str
    query: RunningQuery
    checkpoint: Checkpoint
    sink: TwoPhaseCommitSink[Any, Any]
    limits: ArrowBatchLimits
    transport: Transport
    schema: pa.Schema
    to_arrow: Any | None
    sources: tuple[str, ...]
    only_drops_rows: bool
    count: TaskCount
    last: tuple[int, Offsets] | None = field(default=None, init=False)
    write_seconds: float = field(default=0.0, init=False)

    def process(self, rows: DataFrame, batch_id: int, emit: Listener) -> Outcome:
        """Run one batch; raises QueryStopped if the query was asked to stop."""
        self.write_seconds = 0.0
        end = self.checkpoint.offsets(batch_id)
        if self.last is None or self.last[0] != batch_id - 1:
            previous = self.checkpoint.offsets(batch_id - 1) if batch_id > 0 else None
        else:
            previous = self.last[1]
        read = self.checkpoint.input_to_run(self.query.query_id, batch_id, end, previous)
        source_rows = most_rows(self.sources, None if previous is None else previous.ends, end.ends)
        emit(OffsetsRead(batch_id, read.start, read.end, source_rows))
        job = self._job(rows, batch_id, source_rows)

        def write(writers: Mapping[str, TaskWriter]) -> Votes:
            self.query.check_reads(batch_id, end)
            return job.write(writers)

        try:
            outcomes = run_batch(read.batch, [self.sink], write)
        finally:
            self.write_seconds = job.seconds or 0.0
        if job.seconds is None and self.checkpoint.has_state():  # the batch was in the table, or prepared
            job.read()
        self.last = (batch_id, end)
        return outcomes[self.sink.name]

    def _job(self, rows: DataFrame, batch_id: int, source_rows: int | None) -> RowsJob:
        tasks = BatchTasks(self.count, input_size(source_rows, self.query.input_bytes(batch_id)))
        plan = None if self.to_arrow is None else self.query.plan(batch_id)
        found = None if plan is None else PlanRows(rows, self.transport, plan, self.schema, self.to_arrow)
        bound = source_rows if self.only_drops_rows else None
        return RowsJob(FrameRows(rows, self.transport), self.limits, self.is_stop, found, bound, tasks)

    def is_stop(self, error: BaseException) -> bool:
        """True if a JVM error only means that the query was asked to stop."""
        return spark_errors.is_interruption(error) or self.query.was_stopped()


@dataclass(slots=True)
class BatchFunction:
    """The function of `foreachBatch` for one stream; `make_sink` opens nothing by itself.

    Attributes:
        maintains: True if the sink is to maintain its target at the end of a query that ends by itself.
    """

    session: SparkSession = field(repr=False)
    reporter: Reporter
    checkpoint: str
    sources: tuple[Source, ...]
    transport: Transport
    functions: Functions
    runs_python: bool
    only_drops_rows: bool
    make_sink: MakeSink = field(repr=False)
    output_mode: OutputMode = OutputMode.APPEND
    maintains: bool = False
    _run: StreamRun | None = field(default=None, init=False, repr=False)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Run one batch and log one line. On QueryStopped, Spark ends the query without an error."""
        self.reporter.emit(BatchStarted(batch_id))
        started = time.monotonic()
        try:
            outcome = self._current_run(rows, batch_id).process(rows, batch_id, self.reporter.emit)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - no error may leave with JVM objects, and Py4J
            # tells Spark nothing of a SystemExit: it would wait for ever.
            failure = self._presentable(error)
            rest = str(failure).splitlines()[1:] if isinstance(failure, LakesinkError) else ()
            was_shown = self.reporter.failed(batch_id, failure, *self._seconds(started), rest)
            if was_shown and isinstance(failure, LakesinkError):
                failure.leave_message_to_log()
            raise failure from None
        self.reporter.finished(batch_id, outcome, *self._seconds(started))
        assert self._run is not None, "it has run the batch"
        self._run.sink.maintain()

    def _current_run(self, rows: DataFrame, batch_id: int) -> StreamRun:
        context = self.session.sparkContext
        run_id = context.getLocalProperty(RUN_ID)
        if self._run is None or self._run.run_id != run_id:
            self._run = None
            query = RunningQuery(self.session, context.getLocalProperty(QUERY_ID))
            self._run = self._first_batch(rows, query, str(run_id))
            facts = facts_of(self.session, query, self.reporter, self.sources, self.functions)
            self.reporter.started(batch_id, facts)
            store_facts(self._run.checkpoint.files, facts, self.reporter)
            at_end = partial(self._run.sink.maintain, at_end=True) if self.maintains and query.ends_by_itself else None
            if self.reporter.emit.others or at_end is not None:
                report_end(query, self.reporter, at_end)
        return self._run

    def _first_batch(self, rows: DataFrame, query: RunningQuery, run_id: str) -> StreamRun:
        """Build the run after checking that this is the expected query: nothing is written before."""
        checkpoint = Checkpoint(HadoopFiles(self.session, query.checkpoint_root), source_folders(query.sources()))
        query.check(self.checkpoint, checkpoint, self.output_mode)
        sink = self.make_sink(rows.sparkSession)
        conf = rows.sparkSession.conf
        limits = ArrowBatchLimits(conf, rows.schema.jsonValue(), with_functions=self.runs_python)
        same_python = conf.get(_PYTHON, None) in {None, self.session.sparkContext.pythonExec}
        return StreamRun(
            run_id,
            query,
            checkpoint,
            sink,
            limits,
            self.transport,
            arriving_schema(rows),
            arrow_converter(rows) if same_python else None,  # an RDD does not know a Python of the session
            tuple(source.name for source in self.sources),
            self.only_drops_rows,
            TaskCount(
                self.session.sparkContext.defaultParallelism, self.runs_python, closes_readers(self.session.version)
            ),
        )

    def _presentable(self, error: Exception | SystemExit) -> Exception:
        """The error without secrets and JVM objects; QueryStopped if the query was asked to stop."""
        if isinstance(error, SystemExit):
            return spark_errors.without_secrets(RuntimeError(f"SystemExit: {error}"))
        if isinstance(error, LakesinkError):
            error.name_checkpoint(shlex.quote(redact(self.checkpoint)))
        if isinstance(error, (LakesinkError, spark_errors.QueryStopped)):
            return error.with_traceback(None)
        if not isinstance(error, spark_errors.JAVA_ERRORS):
            return spark_errors.without_secrets(error)
        stopped = spark_errors.is_interruption(error) if self._run is None else self._run.is_stop(error)
        return spark_errors.QueryStopped() if stopped else spark_errors.job_error(spark_errors.whole_text(error))

    def _seconds(self, started: float) -> tuple[float, float]:
        return time.monotonic() - started, 0.0 if self._run is None else self._run.write_seconds


def stream_writer(
    df: DataFrame,
    checkpoint: str,
    reporter: Reporter,
    make_sink: MakeSink,
    *,
    output_mode: OutputMode = OutputMode.APPEND,
    maintains: bool = False,
) -> DataStreamWriter:
    """A writer that commits every micro-batch in two phases; the first batch of a run calls `make_sink`."""
    location = absolute_checkpoint(df.sparkSession, checkpoint)
    rows, transport = encode_for_transport(df)
    function = BatchFunction(
        session=df.sparkSession,
        reporter=reporter,
        checkpoint=location,
        sources=tuple(sources_of(df)),
        transport=transport,
        functions=functions_of(df),
        runs_python=runs_python(df),
        only_drops_rows=only_drops_rows(df),
        make_sink=make_sink,
        output_mode=output_mode,
        maintains=maintains,
    )
    writer = rows.writeStream.outputMode(output_mode.value).option("checkpointLocation", location)
    return writer.foreachBatch(function)
