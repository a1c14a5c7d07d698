"""What a driver does, step by step, for those who check it against the model.

``LAKESINK_TRACE`` names a file. Each step of each driver of an Iceberg sink appends one line of JSON to it, in one
write, so that any number of processes may share the file. The variable is read at each step: a run without it costs one
dictionary look-up a step. `Event` says what the steps are. A line bears ids and digests that the table shows anyway: no
row, no path, no option, no text of an error.

A line is written when its step is done, but for `Event.ATTEMPT`, which is written before the request is sent. So
whoever sees a commit in a table finds its attempt further up in the file. A driver that dies leaves the steps that it
did. Lines of one driver are numbered: one that is missing is noticed.
"""

import json
import logging
import os
from dataclasses import dataclass
from enum import Enum
from typing import Any

from lakesink_protocol.errors import BatchRefused, CommitUnresolved
from lakesink_protocol.identity import BATCH_FACTS, Batch
from lakesink_protocol.ledger import LedgerEntry, Mark
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Commit, Refuse, Skip, Verdict

logger = logging.getLogger("lakesink")

VARIABLE = "LAKESINK_TRACE"
FIRST_RULE_OF_HISTORY = 7
"""Rules before it speak of a table, an entry, or its absence; from here on it is known whether the entry is gone."""


class Event(Enum):
    """The steps of a driver."""

    BEGIN = "begin"  # looked at the table before anything is written: the facts, the rule and its verdict
    RECOVERED = "recovered"  # what an earlier driver prepared is used
    PREPARED = "prepared"  # the votes are in and the manifests written
    RECORDED = "recorded"  # the prepared record is durable
    ABORTED = "aborted"  # the batch failed before it could be committed
    LOOK = "look"  # looked at the table for an attempt, or for the last time: as `begin`
    ATTEMPT = "attempt"  # is about to send a request: what it asserts
    ANSWER = "answer"  # what the catalog's answer shows: landed, not-shown, unknown
    COMMITTED = "committed"  # the batch is in the table by what this driver prepared
    KNOWN = "known"  # the batch is in the table by what another one prepared
    AGAIN = "again"  # the ledger or the schema moved on: the batch must be written again
    REFUSED = "refused"  # the table's history does not allow the batch any more
    UNRESOLVED = "unresolved"  # attempts ran out
    FAILED = "failed"  # the commit ended otherwise: by a final error, or because the driver was asked to stop


_ENDS = {BatchRefused: Event.REFUSED, CommitUnresolved: Event.UNRESOLVED}


@dataclass(slots=True)
class Trace:
    """The steps of one driver.

    Attributes:
        driver: A name that no other driver has; empty for what is not to be traced.
    """

    driver: str = ""
    _steps: int = 0

    def looked(self, event: Event, situation: Situation, verdict: Verdict, *, tagged: bool) -> None:
        """A look at the table.

        Args:
            event: `Event.BEGIN` or `Event.LOOK`.
            situation: The facts.
            verdict: What was decided.
            tagged: True if the sink sets its ledger tag.
        """
        path = self._path()
        if path:
            self._write(path, event, situation.batch.batch_id, _facts(situation, verdict) | {"tagged": tagged})

    def step(self, event: Event, batch: Batch, **facts: Any) -> None:
        """Any other step.

        Args:
            event: Which one.
            batch: Of the driver.
            facts: What is to be known of it, as JSON has it.
        """
        path = self._path()
        if path:
            self._write(path, event, batch.batch_id, facts)

    def ended(self, batch: Batch, ended: Outcome | BaseException | None) -> None:
        """The end of a commit.

        Args:
            batch: Of the driver.
            ended: What the commit returned, or raised.
        """
        match ended:
            case Committed(snapshot_id=snapshot_id):
                self.step(Event.COMMITTED, batch, snapshot=snapshot_id)
            case AlreadyCommitted(snapshot_id=found):
                self.step(Event.KNOWN, batch, snapshot=found)
            case None:
                self.step(Event.AGAIN, batch)
            case _:
                self.step(_ENDS.get(type(ended), Event.FAILED), batch)

    def _path(self) -> str | None:
        return os.environ.get(VARIABLE) if self.driver else None

    def _write(self, path: str, event: Event, batch_id: int, facts: dict[str, Any]) -> None:
        self._steps += 1
        line = {"driver": self.driver, "step": self._steps, "event": event.value, "batch_id": batch_id, **facts}
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.write(file, json.dumps(line, separators=(",", ":")).encode() + b"\n")
            finally:
                os.close(file)
        except OSError as error:  # what is only watched must not fail because of it
            logger.warning("lakesink.trace.lost driver=%s step=%d errno=%s", self.driver, self._steps, error.errno)


def _facts(s: Situation, verdict: Verdict) -> dict[str, Any]:
    """All that the verdict may rest on."""
    return {
        "sink": s.key.ledger_property,
        "kind": s.key.kind.value,
        "table": s.view.table_uuid,
        "batch": {name: getattr(s.batch, name) for name in BATCH_FACTS if name not in ("batch_id", "offsets")},
        "rule": verdict.rule,
        "verdict": _word(verdict),
        "accepted": verdict.accepted if isinstance(verdict, Commit) else "",
        "head": s.view.head,
        "tag": s.view.tag_snapshot_id,
        "entry": _entry(s.entry),
        "gone": verdict.rule >= FIRST_RULE_OF_HISTORY and s.gone,
        "newest": _mark(s.newest_mark),
        "shown": s.marked_snapshot,
        "marked": s.marked,
        "elsewhere": s.marked_elsewhere or (s.newest_of_stream is not None and s.newest_of_stream.key != s.key),
        "complete": s.walk_complete,
    }


def _word(verdict: Verdict) -> str:
    match verdict:
        case Commit():
            return "commit"
        case Skip():
            return "skip"
        case Refuse(reason=reason):
            return reason.value


def _entry(entry: LedgerEntry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    return {**_mark_like(entry), "snapshot": entry.snapshot_id}


def _mark(mark: Mark | None) -> dict[str, Any] | None:
    return None if mark is None else _mark_like(mark)


def _mark_like(written: LedgerEntry | Mark) -> dict[str, Any]:
    """Only what a verdict rests on: texts that a table gives are cut where a digest or an id of ours would end."""
    texts = {"query_id": written.query_id, "fingerprint": written.fingerprint, "end": written.end}
    return {"batch_id": written.batch_id, **{name: text[:64] for name, text in texts.items()}}
