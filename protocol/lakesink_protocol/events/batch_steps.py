"""The steps of a batch, from its offsets to its end; `committing` has those of its commit."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from lakesink_protocol.events import event
from lakesink_protocol.measures import UNKNOWN_KEYS
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome, word_of
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Verdict


class BatchStarted(event.BatchEvent):
    """Spark has logged the batch's offsets; nothing is read or written."""


class OffsetsRead(event.BatchEvent):
    """The batch reads its sources between these offsets, as the ledger stores them.

    `start` is None if the sources do not tell it, and `count` unless all of them count, as Kafka does.
    """

    start: Any
    end: Any
    count: int | None


class TableCreated(event.TableBatchEvent):
    """The first batch created its table."""

    level = event.INFO
    line = "lakesink.table.created table=%(table)s batch=%(batch_id)d"


class Decided(event.BatchEvent):
    """A decision: before anything is written (`at_begin`), or for an attempt. `tagged` if the sink sets its tag."""

    situation: Situation
    verdict: Verdict
    tagged: bool
    at_begin: bool


class AcceptUnused(event.BatchEvent):
    """The accepted refusal did not apply. `kind` of the target: ``table``, ``topic`` or ``directory``."""

    line = (
        "lakesink.accept.unused %(kind)s=%(target)s sink=%(sink)s batch=%(batch_id)d accept=%(accept)s: it did not"
        " apply; remove it"
    )
    kind: str
    target: str
    sink: str
    accept: str


class EntryUnverifiable(event.SinkBatchEvent):
    """Expiry removed the snapshot of the ledger entry, whose batch this is; the entry is trusted."""

    line = (
        "lakesink.ledger.unproven table=%(table)s sink=%(sink)s batch=%(batch_id)d: expiry removed its snapshot; the"
        " entry is trusted"
    )


class PreparedDropped(event.Event):
    """A prepared record cannot be read, or is so old that an orphan cleanup may have removed its files."""

    line = "lakesink.prepared.dropped reason=%(reason)s%(known)s"
    reason: str
    batch_id: int | None = None
    age_s: int | None = None
    path: str | None = None
    error: str | None = None

    @property
    def known(self) -> str:
        """What else is known of the record."""
        facts = {"batch": self.batch_id, "age_s": self.age_s, "path": self.path, "error": self.error}
        return _pairs({name: fact for name, fact in facts.items() if fact is not None})


class PreparedUnusable(event.BatchEvent):
    """The batch that an earlier run prepared can no longer be committed."""

    line = "lakesink.prepared.dropped batch=%(batch_id)d reason=%(reason)s"
    reason: str


class BatchRecovered(event.BatchEvent):
    """This run uses the batch that an earlier run prepared."""

    snapshot_id: int


class FileClosing(event.BatchEvent):
    """A task has written rows into a file that is not closed."""


class BatchPrepared(event.BatchEvent):
    """All receipts have arrived, and the manifests are written."""

    snapshot_id: int


class RecordDue(event.BatchEvent):
    """The prepared record is about to be written."""


class RecordStored(event.BatchEvent):
    """The prepared record is durable."""


class BatchRecorded(event.BatchEvent):
    """The table's sink continues, after its record was stored."""


class BatchAborted(event.BatchEvent):
    """The batch failed before it could be committed. `kind` of the target: ``table``, ``topic`` or ``directory``."""

    level = event.INFO
    line = "lakesink.batch.aborted %(kind)s=%(target)s batch=%(batch_id)d"
    kind: str
    target: str


class BatchLanded(event.BatchEvent):
    """The sink is done; Spark has not logged the batch as complete."""


class RecordKept(event.Event):
    """A file of an earlier pre-commit, a record or a keys file, could not be removed."""

    level = event.DEBUG
    line = "lakesink.prepared.kept path=%(path)s error=%(error)s"
    path: str
    error: str


class BatchEnded(event.SinkBatchEvent):
    """The end of a batch. `write_seconds` is the job over the rows, 0 if none ran."""

    seconds: float
    write_seconds: float


class BatchFinished(BatchEnded):
    """The batch is in the target."""

    level = event.INFO
    line = (
        "lakesink.batch.%(word)s table=%(table)s sink=%(sink)s batch=%(batch_id)d%(counts)s seconds=%(seconds).3f"
        " write_seconds=%(write_seconds).3f"
    )
    outcome: Outcome

    @property
    def severity(self) -> int:
        """A batch of an earlier run is a warning: its rows come from the code of that run."""
        return event.WARNING if isinstance(self.outcome, Committed) and self.outcome.recovered else self.level

    @property
    def word(self) -> str:
        """What became of the batch."""
        return word_of(self.outcome)

    @property
    def counts(self) -> str:
        """The snapshot, what this run committed, and what was found in the rows."""
        outcome, snapshot = self.outcome, {"snapshot": self.outcome.snapshot_id}
        if isinstance(outcome, AlreadyCommitted):
            return _pairs(snapshot)
        counts = outcome.quality.counts
        found = {
            UNKNOWN_KEYS.name: 0,
            "unknown_names": outcome.quality.names_text if counts[UNKNOWN_KEYS] else "",
            **counts.told,
            **(asdict(outcome.changes) if outcome.changes else {}),
            "note": "'holds what the earlier run wrote'" if outcome.recovered else "",
            "accepted": outcome.accepted,
        }
        always = snapshot | {name: getattr(outcome, name) for name in ("rows", "files", "bytes", "attempts")}
        return _pairs(always | {name: fact for name, fact in found.items() if fact})


class BatchInterrupted(BatchEnded):
    """The query was asked to stop."""

    level = event.INFO
    line = (
        "lakesink.batch.interrupted table=%(table)s sink=%(sink)s batch=%(batch_id)d seconds=%(seconds).3f"
        " write_seconds=%(write_seconds).3f"
    )


class BatchFailed(BatchEnded):
    """The batch failed, or `is_refused`; `rest` are lines of its message after the first that nothing else shows."""

    level = event.ERROR
    line = (
        "lakesink.batch.%(word)s table=%(table)s sink=%(sink)s batch=%(batch_id)d code=%(code)s seconds=%(seconds).3f"
        " write_seconds=%(write_seconds).3f error=%(error)s%(lines)s"
    )
    is_refused: bool
    code: str
    error: str
    rest: tuple[str, ...]

    @property
    def word(self) -> str:
        """What became of the batch."""
        return "refused" if self.is_refused else "failed"

    @property
    def lines(self) -> str:
        """The rest, each line on one of its own."""
        return "".join(f"\n{line}" for line in self.rest)


def _pairs(facts: Mapping[str, Any]) -> str:
    return "".join(f" {name}={fact}" for name, fact in facts.items())
