"""Reports each batch of one sink, and the start of a run, as events."""

from dataclasses import dataclass

from lakesink.checkpoint.notes import QueryNotes
from lakesink.checkpoint.sources import Replay, guarantee
from lakesink.spark.failures import QueryStopped
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol import events
from lakesink_protocol.errors import BatchRefused, LakesinkError, WriteError
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.redact import describe


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of a batch; `write_seconds` is the job over the rows, 0 if none ran."""

    seconds: float
    write_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Reporter:
    """Emits the events of one sink; `sink` is a sink id or an application id."""

    table: str
    sink: str
    emit: events.Listener = LISTENERS

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

    def notes_unwritten(self, query_id: str, error: Exception) -> None:
        """Report that the facts for `doctor --query` were not stored; the stream does not need them."""
        self.emit(events.QueryFactsUnwritten(self.table, self.sink, query_id, describe(error)))

    def finished(self, batch_id: int, outcome: Outcome, timing: Timing) -> None:
        """Report a batch that is in the table."""
        self.emit(events.BatchFinished(*self._end(batch_id, timing), outcome))

    def failed(self, batch_id: int, error: Exception, timing: Timing) -> None:
        """Report a batch that failed, or that a stop interrupted."""
        end = self._end(batch_id, timing)
        if isinstance(error, QueryStopped):
            self.emit(events.BatchInterrupted(*end))
            return
        code = error.code if isinstance(error, LakesinkError) else type(error).__name__
        details = tuple(error.details) if isinstance(error, WriteError) else ()
        self.emit(events.BatchFailed(*end, isinstance(error, BatchRefused), code, describe(error), details))

    def _end(self, batch_id: int, timing: Timing) -> tuple[int, str, str, float, float]:
        return batch_id, self.table, self.sink, timing.seconds, timing.write_seconds
