"""Logs one line for every batch, under a fixed event name, and one for the start of a run."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from lakesink.checkpoint.notes import QueryNotes
from lakesink.checkpoint.sources import Replay, guarantee
from lakesink.spark.failures import QueryStopped
from lakesink_protocol.errors import BatchRefused, LakesinkError, WriteError
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.redact import describe

logger = logging.getLogger("lakesink")


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of a batch; `write_seconds` is the job over the rows, 0 if none ran."""

    seconds: float
    write_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Reporter:
    """Logs the events of one sink; `sink` is a sink id or an application id."""

    table: str
    sink: str

    def started(self, batch_id: int, notes: QueryNotes) -> None:
        """Log the guarantee of a run at its first batch, and the facts that weaken it."""
        promise = guarantee(notes.sources)
        weakened = promise is not Replay.YES or bool(notes.functions.unstable) or not notes.creates_atomically
        query_id, unstable = notes.query_id, ",".join(notes.functions.unstable)
        fields: dict[str, object] = {
            "query": query_id,
            "batch": batch_id,
            "sources": ",".join(source.name for source in notes.sources),
            "guarantee": f"'{promise.value}'",
            "unstable": f"'{unstable}'",
            "output_mode": notes.output_mode,
            "speculation": str(notes.speculation).lower(),
            "checkpoint": f"{notes.scheme}{'' if notes.creates_atomically else ' (not atomic)'}",
        }
        self._log(logging.WARNING if weakened else logging.INFO, "lakesink.query.started", fields)
        if any(source.uncommitted for source in notes.sources):
            note = (
                "'records of aborted transactions are rows too; kafka.isolation.level=read_committed leaves them out'"
            )
            self._log(logging.WARNING, "lakesink.source.read-uncommitted", {"query": query_id, "note": note})

    def notes_unwritten(self, query_id: str, error: Exception) -> None:
        """Log that the facts for `doctor --query` were not stored; the stream does not need them."""
        fields: dict[str, object] = {"query": query_id, "error": describe(error)}
        self._log(logging.WARNING, "lakesink.query.notes-unwritten", fields)

    def finished(self, batch_id: int, outcome: Outcome, timing: Timing) -> None:
        """Log a batch that is in the table."""
        level = logging.WARNING if isinstance(outcome, Committed) and outcome.recovered else logging.INFO
        self._log(level, event_of(outcome), {"batch": batch_id} | _counts(outcome) | _times(timing))

    def failed(self, batch_id: int, error: Exception, timing: Timing) -> None:
        """Log a batch that failed, or that a stop interrupted."""
        if isinstance(error, QueryStopped):
            self._log(logging.INFO, "lakesink.batch.interrupted", {"batch": batch_id} | _times(timing))
            return
        event = "lakesink.batch.refused" if isinstance(error, BatchRefused) else "lakesink.batch.failed"
        code = error.code if isinstance(error, LakesinkError) else type(error).__name__
        fields = {"batch": batch_id, "code": code} | _times(timing) | {"error": describe(error)}
        self._log(logging.ERROR, event, fields, error.details if isinstance(error, WriteError) else ())

    def _log(self, level: int, event: str, fields: dict[str, object], details: Sequence[str] = ()) -> None:
        shown = {"table": self.table, "sink": self.sink} | fields
        first = f"{event} {' '.join(f'{key}={value}' for key, value in shown.items())}"
        logger.log(level, "%s", "\n".join([first, *(f"  - {line}" for line in details)]))


def event_of(outcome: Outcome) -> str:
    """Name of the log event for a batch's outcome."""
    match outcome:
        case AlreadyCommitted():
            return "lakesink.batch.already-committed"
        case Committed(recovered=True):
            return "lakesink.batch.recovered"
        case Committed(rows=0):
            return "lakesink.batch.empty"
        case Committed():
            return "lakesink.batch.committed"


def _counts(outcome: Outcome) -> dict[str, object]:
    if isinstance(outcome, AlreadyCommitted):
        return {"snapshot": outcome.snapshot_id}
    counts: dict[str, object] = {
        "snapshot": outcome.snapshot_id,
        "rows": outcome.rows,
        "files": outcome.files,
        "bytes": outcome.bytes,
        "attempts": outcome.attempts,
    }
    decoded = outcome.decoded
    if decoded.malformed_rows:
        counts["malformed_rows"] = decoded.malformed_rows
    if decoded.unknown_keys:
        counts |= {"unknown_keys": decoded.unknown_keys, "unknown_names": decoded.names_text}
    if outcome.recovered:
        counts["note"] = "'holds what the earlier run wrote'"
    return counts if outcome.accepted is None else counts | {"accepted": outcome.accepted}


def _times(timing: Timing) -> dict[str, object]:
    return {"seconds": f"{timing.seconds:.3f}", "write_seconds": f"{timing.write_seconds:.3f}"}
