"""Reports each batch of one sink, and the start of a run, as events, and stores the facts of a run."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from lakesink import __version__
from lakesink.checkpoint.notes import NOTES, Functions, QueryNotes
from lakesink.checkpoint.sources import Replay, Source, guarantee
from lakesink.spark.failures import QueryStopped
from lakesink.spark.hadoop import HadoopFiles
from lakesink.spark.query import RunningQuery
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol import events
from lakesink_protocol.errors import BatchRefused, LakesinkError, WriteError
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.redact import describe, redact

SPECULATION = "spark.speculation"
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


@dataclass(frozen=True, slots=True)
class Reporter:
    """Emits the events of one sink; `sink` is a sink id or an application id.

    Of a batch's seconds, `write_seconds` is the job over the rows, 0 if none ran.
    """

    table: str
    sink: str
    emit: events.Listeners = LISTENERS

    def started(self, batch_id: int, notes: QueryNotes) -> None:
        """Report the guarantee of a run at its first batch, and the facts that weaken it."""
        promise = guarantee(notes.sources)
        unstable = notes.functions.unstable
        started = events.QueryStarted(
            batch_id=batch_id,
            table=self.table,
            sink=self.sink,
            query_id=notes.query_id,
            sources=tuple(source.name for source in notes.sources),
            guarantee=promise.value,
            is_weakened=promise is not Replay.YES or bool(unstable) or not notes.creates_atomically,
            unstable=tuple(unstable),
            output_mode=notes.output_mode,
            speculation=notes.speculation,
            scheme=notes.scheme,
            creates_atomically=notes.creates_atomically,
            reads_uncommitted=any(source.uncommitted for source in notes.sources),
        )
        self.emit(started)

    def ended(self) -> None:
        """Report the end of a run; nothing is reported if it ended before its first batch."""
        self.emit(events.QueryEnded())

    def notes_unwritten(self, query_id: str, error: Exception) -> None:
        """Report that the facts for `doctor --query` were not stored; the stream does not need them."""
        self.emit(events.QueryFactsUnwritten(self.table, self.sink, query_id, describe(error)))

    def finished(self, batch_id: int, outcome: Outcome, seconds: float, write_seconds: float = 0.0) -> None:
        """Report a batch that is in the table."""
        self.emit(events.BatchFinished(batch_id, self.table, self.sink, seconds, write_seconds, outcome))

    def failed(self, batch_id: int, error: Exception, seconds: float, write_seconds: float = 0.0) -> None:
        """Report a batch that failed, or that a stop interrupted."""
        end = batch_id, self.table, self.sink, seconds, write_seconds
        if isinstance(error, QueryStopped):
            self.emit(events.BatchInterrupted(*end))
            return
        code = error.code if isinstance(error, LakesinkError) else type(error).__name__
        details = tuple(error.details) if isinstance(error, WriteError) else ()
        self.emit(events.BatchFailed(*end, isinstance(error, BatchRefused), code, describe(error), details))


def notes_of(
    session: SparkSession, query: RunningQuery, reporter: Reporter, sources: Sequence[Source], functions: Functions
) -> QueryNotes:
    """The facts of a running query."""
    return QueryNotes(
        lakesink=__version__,
        query_id=query.query_id,
        sink=redact(reporter.sink),
        table=redact(reporter.table),
        sources=tuple(sources),
        functions=functions,
        output_mode=query.output_mode,
        speculation=str(session.sparkContext.getConf().get(SPECULATION, "false")).lower() == "true",
        scheme=urlsplit(query.checkpoint_root).scheme,
        file_manager=str(session.conf.get(FILE_MANAGER, "")).rpartition(".")[2],
    )


def note(files: Any, notes: QueryNotes, reporter: Reporter) -> None:
    """Store the facts if they changed. A failure is only logged: it must not end the stream."""
    assert isinstance(files, HadoopFiles), "a running query's checkpoint is read by its JVM"
    told = notes.to_bytes()
    try:
        if files.read(NOTES) != told:
            files.replace(NOTES, told)
    except Exception as error:  # noqa: BLE001 - whatever the storage raises, the stream does not need them
        reporter.notes_unwritten(notes.query_id, error)


def report_end(query: RunningQuery, reporter: Reporter) -> None:
    """Report the end of a run when it comes. Spark calls no batch function then, so a thread waits for it."""

    def wait() -> None:
        query.await_end()
        reporter.ended()

    threading.Thread(target=wait, name=f"end of {query.query_id}", daemon=True).start()
