"""Emits events for the batches of one sink and the start of a run, and stores the facts of a run."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from lakesink._version import __version__
from lakesink.checkpoint.offsets import is_reader_offset
from lakesink.checkpoint.query_facts import QUERY_FACTS, Functions, QueryFacts, Replay, Source, guarantee
from lakesink.observe.metrics import Stream, counting
from lakesink.observe.terminal import is_shown
from lakesink.read.position import parse_offset
from lakesink.settings.options import read_with_variable
from lakesink.spark.hadoop import HadoopFiles
from lakesink.spark.query import RunningQuery
from lakesink.spark.rows.on_driver import rows_between
from lakesink.spark.spark_errors import QueryStopped
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol import events
from lakesink_protocol.errors import BatchRefused, LakesinkError, SettingsError
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.redact import describe, redact

SPECULATION = "spark.speculation"
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


@dataclass(frozen=True, slots=True)
class Reporter:
    """Emits the events of one sink; `sink` is a sink id or an application id.

    `write_seconds` is the part of a batch's `seconds` for the job over its rows; 0 if no job ran.
    """

    table: str
    sink: str
    emit: events.Listeners = LISTENERS

    def started(self, batch_id: int, facts: QueryFacts) -> None:
        """Report the guarantee of a run at its first batch, and the facts that weaken it."""
        replay, unstable = guarantee(facts.sources), facts.functions.unstable
        started = events.QueryStarted(
            batch_id=batch_id,
            table=self.table,
            sink=self.sink,
            query_id=facts.query_id,
            sources=tuple(source.name for source in facts.sources),
            guarantee=replay.value,
            is_weakened=replay is not Replay.YES or bool(unstable) or not facts.creates_atomically,
            unstable=unstable,
            output_mode=facts.output_mode,
            speculation=facts.speculation,
            checkpoint=f"{facts.scheme}{'' if facts.creates_atomically else ' (not atomic)'}",
        )
        self.emit(started)
        if any(source.uncommitted for source in facts.sources):
            self.emit(events.SourceReadsUncommitted(self.table, self.sink, facts.query_id))

    def finished(self, batch_id: int, outcome: Outcome, seconds: float, write_seconds: float = 0.0) -> None:
        """Report a batch that is in the table."""
        self.emit(events.BatchFinished(batch_id, self.table, self.sink, seconds, write_seconds, outcome))

    def failed(
        self, batch_id: int, error: Exception, seconds: float, write_seconds: float = 0.0, rest: Sequence[str] = ()
    ) -> bool:
        """Report a batch that failed, or that was interrupted by a stop of the query; true if a person can see it.

        `rest` are lines of its message after the first that nothing else shows.
        """
        end = batch_id, self.table, self.sink, seconds, write_seconds
        if isinstance(error, QueryStopped):
            self.emit(events.BatchInterrupted(*end))
            return False
        code, first = type(error).__name__, describe(error)
        if isinstance(error, LakesinkError):
            code, first = error.code, redact(f"{code}: [{error.code}] {error.what}")
        failed = events.BatchFailed(*end, isinstance(error, BatchRefused), code, first, tuple(rest))
        self.emit(failed)
        return is_shown(failed, self.emit)


def facts_of(
    session: SparkSession, query: RunningQuery, reporter: Reporter, sources: Sequence[Source], functions: Functions
) -> QueryFacts:
    """The facts of a running query."""
    return QueryFacts(
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


def store_facts(files: Any, facts: QueryFacts, reporter: Reporter) -> None:
    """Store the facts if they changed. A failure is only logged: it must not end the stream."""
    assert isinstance(files, HadoopFiles), "a running query's checkpoint is read by its JVM"
    content = facts.to_bytes()
    try:
        if files.read(QUERY_FACTS) != content:
            files.replace(QUERY_FACTS, content)
    except Exception as error:  # noqa: BLE001 - a stream does not need its stored facts
        reporter.emit(events.QueryFactsUnwritten(reporter.table, reporter.sink, facts.query_id, describe(error)))


def report_end(query: RunningQuery, reporter: Reporter, at_end: Callable[[], object] | None = None) -> None:
    """Report the end of a run when it comes. Spark calls no batch function then, so a thread waits for it.

    With metrics, it also reports how far the query has read: every second, and once more at the end. Unless the run
    has failed, it calls `at_end`, for which the process waits before it ends.
    """
    counts = any(isinstance(one, Stream) for one in reporter.emit.others)

    def wait() -> None:
        is_over = False
        while not is_over:
            is_over = query.has_ended()
            for event in progressed(query.progress()) if counts else ():
                reporter.emit(event)
        if at_end is not None and not query.has_failed():
            at_end()
        reporter.emit(events.QueryEnded())

    thread = threading.Thread(target=wait, name=f"end of {query.query_id}", daemon=True)
    thread.start()
    if at_end is not None:  # Python has no public hook that runs before it closes the pools of threads
        threading._register_atexit(thread.join)  # type: ignore[attr-defined]


def progressed(sources: Sequence[Mapping[str, Any]]) -> Iterator[events.Event]:
    """How far a query has read, by the sources in Spark's progress; all must tell their newest offsets for a lag."""
    counts = [rows_between(source["endOffset"], source["latestOffset"]) for source in sources]
    known = [count for count in counts if count is not None]
    if counts and len(known) == len(counts):
        yield events.QueryProgressed(sum(known))
    for position in (parse_offset(one["endOffset"]) for one in sources if is_reader_offset(one["endOffset"])):
        if position.is_behind_one:
            yield events.BatchesRead(position.batch_id, position.table, position.sink, position.branch)


def measured(
    listeners: events.Listeners, table: str, sink: str, branch: str = "", *, metrics: str | None = None
) -> events.Listeners:
    """These listeners, and one that counts, if the option or the environment says who reads the numbers.

    Raises:
        SettingsError: The variable is malformed, or the client is not installed.
    """
    way = read_with_variable("metrics", metrics)
    if way is not None:
        try:
            return listeners.also(counting(way).stream(table, sink, branch))
        except OSError as error:
            listeners(events.MetricsNotServed(way, describe(error)))
    return listeners


def traced(
    listeners: events.Listeners,
    catalog: str = "",
    names: Sequence[str] = (),
    places: Callable[[], Sequence[str]] = tuple,
    *,
    openlineage: bool | None = None,
) -> events.Listeners:
    """These listeners, and one that tells OpenLineage of commits, if the option or the environment asks for it.

    Raises:
        SettingsError: The variable is malformed, or there is no client, or none with such a configuration.
    """
    if not read_with_variable("openlineage", openlineage):
        return listeners
    try:
        from lakesink.spark.open_lineage import Lineage, sender  # noqa: PLC0415 - an extra

        send = sender()
    except ModuleNotFoundError as error:
        wrong = SettingsError.of("OPENLINEAGE_CLIENT", library=error.name)
    except Exception as error:  # noqa: BLE001 - the client raises what its transports raise
        wrong = SettingsError.of("OPENLINEAGE_CLIENT.configuration", error=describe(error))
    else:
        return listeners.also(Lineage(send, catalog, names, places()))
    raise wrong
