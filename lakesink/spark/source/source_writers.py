"""Writers of ``format("lakesink")``: the API for queries that cannot use `foreachBatch`.

Spark plans a batch in one Python process, writes it in the executors' processes, and commits it in a third. None of
them has a Spark session, and they share only the table and the checkpoint. The planner reads the batch from the
checkpoint and sends a pickled writer to the tasks. The committer reads the batch again, validates the receipts and runs
the same two-phase commit as `lakesink.stream`.
"""

import logging
import pickle
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakesink._version import __version__
from lakesink.checkpoint.folder import Checkpoint, FsspecFiles
from lakesink.settings.options import option_invalid, read_with_variable
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import stored_columns
from lakesink.sinks.iceberg.change_plan import check_left_out
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.sink_table import RunMemory
from lakesink.spark.report import Reporter
from lakesink.spark.rows.frame_schema import stored_schema
from lakesink.spark.rows.task import first_refusal
from lakesink.spark.rows.worker_reuse import make_reuse_cheap
from lakesink.spark.source import source_options
from lakesink.spark.source.connect import check_lasts
from lakesink.spark.source.source_tasks import BatchTask, PlannedTask, StreamTask, TaskMessage, marked_names
from lakesink.spark.spark_errors import job_error, presentable
from lakesink_catalog.connect.catalog import CatalogConfig
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.manifests.merging import MergeMemory
from lakesink_protocol.coordinator import run_batch, writers_for
from lakesink_protocol.errors import LakesinkError, QueryError, Reason, WriteError
from lakesink_protocol.events import BatchStarted
from lakesink_protocol.identity import Batch
from lakesink_protocol.redact import redact, shown
from lakesink_protocol.refusals.texts import Words
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Vote, Votes, receipts_of

_CHECKPOINT = re.compile(r".*/_checkpoints/.+/(?P<flow>[^/]{1,60})/(?P<number>[0-9]{1,9})/?")


def ensure_log_handler() -> None:
    """Add a log handler if there is none: the standard error of planner and committer is the driver's."""
    logger = logging.getLogger("lakesink")
    if not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.INFO)


Messages = Sequence[WriterCommitMessage | None]


def stream_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> "StreamWriter":
    """The writer of one micro-batch."""
    make_reuse_cheap()
    with presentable():
        _check_appends(overwrite=overwrite)
        destination = source_options.stream_destination(options)
        with source_options.spelled_for_spark():
            return StreamWriter(destination, Arriving.of(stored_schema(schema), destination.settings))


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchTask:
    """The writer of a batch write, already planned."""
    make_reuse_cheap()
    with presentable(), source_options.spelled_for_spark():
        _check_appends(overwrite=overwrite)
        destination, batch = source_options.transaction_destination(options)
        arriving = Arriving.of(stored_schema(schema), destination.settings)
        committer = partial(commit_batch, destination, arriving.stored, batch)
        writer = _writer_for(_sink(destination, arriving.stored), batch)
        task = PlannedTask(__version__, None, writer, deletes=arriving.deletes)
        return BatchTask(task, pickle.dumps(committer))


@dataclass(frozen=True, slots=True)
class Arriving:
    """The columns of the rows that are stored, and the name of the one that is true for a delete; empty if none is."""

    stored: pa.Schema
    deletes: str = ""

    @classmethod
    def of(cls, rows: pa.Schema, settings: Settings) -> "Arriving":
        """Of rows of this schema."""
        if not settings.has_changes or settings.decode:
            return cls(stored_columns(rows, settings, case_sensitive=False))
        check_left_out(rows.names, settings, case_sensitive=False)
        deletes = _deletes_column(rows, settings.apply_as_deletes)
        names = marked_names(rows.names, deletes)
        marked = pa.schema([field.with_name(name) for field, name in zip(rows, names, strict=True)])
        return cls(stored_columns(marked, settings, case_sensitive=False), deletes)


def _deletes_column(rows: pa.Schema, named: str) -> str:
    """The column that the option apply_as_deletes names; empty without the option."""
    found = [field for field in rows if field.name.lower() == named.strip().lower()]
    if named and (len(found) != 1 or found[0].type != pa.bool_()):
        raise option_invalid(
            "apply_as_deletes",
            f"The option apply_as_deletes is {named[:60]!r}, which is no BOOLEAN column of the rows: the format gets"
            " them after Spark has evaluated the query.",
        )
    return found[0].name if named else ""


class StreamWriter(DataSourceStreamArrowWriter):
    """Plans or commits one micro-batch of a stream, in the planner's or the committer's process."""

    def __init__(self, destination: source_options.Destination, arriving: Arriving) -> None:
        self._destination = destination
        self._arriving = arriving
        self._planned: PlannedTask | None = None

    def __reduce__(self) -> tuple[Callable[[PlannedTask], StreamTask], tuple[PlannedTask]]:
        """Plan the batch: only the planner pickles a writer, to send it. The pickled plan contains no options."""
        if self._planned is None:
            self._planned = self._plan()
        return StreamTask, (self._planned,)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Never called: tasks run the `StreamTask` that `__reduce__` pickles."""
        raise AssertionError("a task must run a StreamTask")

    def commit(self, messages: Messages, batchId: int) -> None:
        """Validate the receipts of a batch and commit it; called in the committer's process."""
        with presentable():
            batch = self._batch(batchId)
        commit_batch(self._destination, self._arriving.stored, batch, messages)

    def _plan(self) -> PlannedTask:
        checkpoint = self._checkpoint()
        with presentable():
            if not checkpoint.files.names("offsets"):  # a continuous query plans no batch before it writes
                raise QueryError.of("TRIGGER_UNSUPPORTED")
            batch_id = checkpoint.newest_batch()
        LISTENERS(BatchStarted(batch_id))  # Spark builds this object from options
        with _reported(self._destination, batch_id):
            writer = _writer_for(_sink(self._destination, self._arriving.stored), self._batch(batch_id))
        keeps_state = writer is None and checkpoint.has_state()
        return PlannedTask(__version__, batch_id, writer, keeps_state, self._arriving.deletes)

    def _batch(self, batch_id: int) -> Batch:
        checkpoint = self._checkpoint()
        end = checkpoint.offsets(batch_id)
        checkpoint.check_folders(end)
        return checkpoint.input_to_run(checkpoint.query_id(), batch_id, end).batch

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(FsspecFiles(self._destination.settings.checkpoint))


@dataclass(slots=True)
class FinishedJob:
    """A finished job over a batch's rows. It ended before the commit began, so it cannot run again."""

    messages: Messages = field(repr=False)
    used: bool = field(default=False, init=False)

    def __call__(self, writers: Mapping[str, TaskWriter]) -> Votes:
        """Return the votes once; a second call raises WriteError, because Spark must write the batch again."""
        if self.used:
            raise WriteError.of("VOTES_INCOMPLETE.used")
        self.used = True
        [(name, writer)] = writers.items()
        sent = [message for message in self.messages if isinstance(message, TaskMessage)]
        if refusal := first_refusal((one.task, one.refusal) for one in sent):
            raise job_error(refusal)
        votes = [
            Vote(one.task, {} if one.receipt is None else receipts_of(name, writer, one.receipt), one.version)
            for one in sent
        ]
        return Votes(max(len(self.messages), 1), votes, __version__)  # Spark plans at least one task, even without rows


def commit_batch(destination: source_options.Destination, schema: pa.Schema, batch: Batch, messages: Messages) -> None:
    """Validate the receipts of a batch and commit it; a message is None if its task sent nothing."""
    started = time.monotonic()
    with _reported(destination, batch.batch_id) as reporter:
        sink = _sink(destination, schema)
        outcome = run_batch(batch, [sink], FinishedJob(messages))[sink.name]
    reporter.finished(batch.batch_id, outcome, time.monotonic() - started)
    sink.maintain()


@contextmanager
def _reported(destination: source_options.Destination, batch_id: int) -> Iterator[Reporter]:
    """Log what fails in one line on the driver's standard error: Spark buries it in stack traces."""
    if read_with_variable("verbose", destination.settings.verbose) is not False:
        ensure_log_handler()
    reporter = Reporter(destination.table, destination.key.name)
    started = time.monotonic()
    try:
        with presentable(), source_options.spelled_for_spark():
            yield reporter
    except Exception as error:
        _open_catalog.cache_clear()
        details: Sequence[str] = ()
        if isinstance(error, LakesinkError):
            error.name_checkpoint(shlex.quote(redact(destination.settings.checkpoint)))
            details = error.details
            error.leave_details_to_log()
        reporter.failed(batch_id, error, time.monotonic() - started, rest=[f"  - {line}" for line in details])
        raise


def _writer_for(sink: IcebergSink, batch: Batch) -> bytes | None:
    """The pickled writer of a batch; None if it is already in the table, or prepared."""
    writer = writers_for(batch, [sink]).get(sink.name)
    return None if writer is None else pickle.dumps(writer)


@lru_cache(maxsize=8)
def _open_catalog(name: str | None, properties: tuple[tuple[str, Any], ...]) -> Catalog:
    """Open a catalog, or reuse it until a batch fails: Spark reuses processes. `properties` contain no secrets."""
    found = CatalogConfig(name, dict(properties)).find()
    check_lasts(found)
    return found.open()


def _sink(destination: source_options.Destination, schema: pa.Schema) -> IcebergSink:
    settings = destination.settings
    catalog = settings.catalog, tuple(settings.catalog_properties.items())
    of_sink = *catalog, destination.table, destination.key
    memory = _memory(*of_sink, settings.max_clock_ahead)  # one limit for a clock
    memory.merges = _merge_memory(*of_sink)
    return IcebergSink(
        destination.table,
        destination.key,
        partial(_open_catalog, *catalog),
        settings,
        schema,
        memory=memory,
        words=words_of(settings.checkpoint),
        can_write_again=False,
    )


_memory = lru_cache(maxsize=64)(lambda *_of_sink: RunMemory())
_merge_memory = lru_cache(maxsize=8)(lambda *_of_sink: MergeMemory())  # it may hold a merge that is under way
"""What this process remembers of a sink, of which every batch has an object."""


def _check_appends(*, overwrite: bool) -> None:
    if overwrite:
        raise QueryError.of("OUTPUT_MODE")


def words_of(checkpoint: str) -> Sequence[Words]:
    """Messages of refusals for a flow of Spark Declarative Pipelines; none if the checkpoint is not a flow's.

    Spark keeps the checkpoint of a flow in ``<storage>/_checkpoints/<sink>/<flow>/<number>``. A full refresh leaves
    that folder and begins the next number, so the flow reads its source again from the beginning.
    """
    found = _CHECKPOINT.fullmatch(checkpoint)
    if found is None:
        return ()
    flow, folder = _literal(found["flow"]), _literal(redact(checkpoint.rstrip("/")))
    if int(found["number"]):
        what = f"The full refresh of flow {flow} would add rows a second time: sink {{sink}} has them up to batch"
        what += " {last}."
        action = (
            f"To undo the refresh, delete the folder {folder}: the flow goes on with the checkpoint of the number"
            " before.\n"
            "To rebuild the table, drop it (with the option create-table), or delete the sink's rows and accept batch"
            " {n} as below by the option accept; then run the pipeline again without a refresh."
        )
    else:
        what = f"Flow {flow} begins anew, but sink {{sink}} has batches up to {{last}} of another flow or checkpoint."
        action = (
            "If another flow of the pipeline has this sink-id, give each flow a sink (dp.create_sink) with a sink-id of"
            " its own; they can write one table.\n"
            "If flow or sink was renamed, or the storage of the pipeline changed, put the old checkpoint into"
            f" {folder}."
        )
    return (Words(Reason.NEW_CHECKPOINT, what, action, when=lambda situation: situation.batch.batch_id == 0),)


def _literal(text: str) -> str:
    """A text for one line of a format string."""
    return shown(text, len(text)).replace("{", "{{").replace("}", "}}")
