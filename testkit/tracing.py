"""The trace: a listener that records the steps of a driver, for checks against the model.

Run a program as ``python testkit/tracing.py PROGRAM ARGUMENT...``, or call `trace_sinks` in it. ``LAKESINK_TRACE``
names a file. Each step of an Iceberg sink appends one line of JSON in one write, so processes can share the file. Each
step reads the variable. A line contains ids and digests that the table shows anyway: no row, path, option or error.

A line is written after its step, except `TraceEvent.ATTEMPT`, which is written before the request is sent. The
attempt of a visible commit is therefore always in the file. The lines of one driver are numbered, so that a missing
line can be found.
"""

import json
import os
import runpy
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink_protocol import events
from lakesink_protocol.errors import BatchRefused, CommitUnresolved
from lakesink_protocol.identity import BATCH_FACTS
from lakesink_protocol.ledger import LedgerEntry, Mark
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Commit, Refuse, Skip, Verdict

VARIABLE = "LAKESINK_TRACE"
FIRST_RULE_OF_HISTORY = 7
"""Earlier rules do not depend on a rollback of the entry; this rule and later ones do."""


class TraceEvent(Enum):
    """The steps of a driver."""

    BEGIN = "begin"  # decision before anything is written: the facts, the rule and its verdict
    RECOVERED = "recovered"  # uses the prepared batch of an earlier driver
    PREPARED = "prepared"  # all receipts have arrived, and the manifests are written
    RECORDED = "recorded"  # the prepared record is durable
    ABORTED = "aborted"  # the batch failed before it could be committed
    LOOK = "look"  # decision for an attempt, or after the last one: the same facts as `begin`
    ATTEMPT = "attempt"  # is about to send a request: its assertions
    ANSWER = "answer"  # result of the catalog's answer: landed, not-shown, unknown
    COMMITTED = "committed"  # the batch is in the table, as this driver prepared it
    KNOWN = "known"  # the batch is in the table, as another driver prepared it
    AGAIN = "again"  # the ledger or the schema changed: the batch must be written again
    REFUSED = "refused"  # the table's history no longer allows the batch
    UNRESOLVED = "unresolved"  # attempts ran out
    FAILED = "failed"  # the commit ended in a final error, or the driver was asked to stop


Step = tuple[TraceEvent, dict[str, Any]]
_PLAIN: Mapping[type[events.Event], Step] = {
    events.BatchRecorded: (TraceEvent.RECORDED, {}),
    events.BatchAborted: (TraceEvent.ABORTED, {}),
    events.CommitShown: (TraceEvent.ANSWER, {"shows": "landed"}),
    events.CommitNotShown: (TraceEvent.ANSWER, {"shows": "not-shown"}),
    events.CommitUnknown: (TraceEvent.ANSWER, {"shows": "unknown"}),
}
_ENDS: dict[type, TraceEvent] = {BatchRefused: TraceEvent.REFUSED, CommitUnresolved: TraceEvent.UNRESOLVED}


@dataclass(slots=True)
class Trace:
    """The steps of one driver; `driver` is a unique name."""

    driver: str
    _steps: int = field(default=0, init=False)

    def __call__(self, event: events.Event) -> None:
        """Write the line of an event that is a step of the driver."""
        path = os.environ.get(VARIABLE)
        step = _step(event) if path else None
        if path and step and isinstance(event, events.BatchEvent):
            self._write(path, event.batch_id, step)

    def _write(self, path: str, batch_id: int, step: Step) -> None:
        self._steps += 1
        name, facts = step
        line = {"driver": self.driver, "step": self._steps, "event": name.value, "batch_id": batch_id, **facts}
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        finally:
            os.close(file)


def trace_sinks(assign: Callable[[type, str, Any], None] = setattr) -> None:
    """Give each Iceberg sink that this process makes from now on a trace of its own.

    Tests give a `setattr` that is taken back.
    """
    made = IcebergSink.__post_init__

    def traced(self: IcebergSink) -> None:
        emit = self.effects.emit
        others = (other for other in emit.others if not isinstance(other, Trace))  # of whose effects a side sink has
        self.effects = replace(self.effects, emit=replace(emit, others=(*others, Trace(secrets.token_hex(8)))))
        made(self)

    assign(IcebergSink, "__post_init__", traced)


def _step(event: events.Event) -> Step | None:
    match event:
        case events.Decided(situation=situation, verdict=verdict):
            name = TraceEvent.BEGIN if event.at_begin else TraceEvent.LOOK
            return name, _facts(situation, verdict) | {"tagged": event.tagged}
        case events.BatchRecovered(snapshot_id=snapshot_id):
            return TraceEvent.RECOVERED, {"snapshot": snapshot_id}
        case events.BatchPrepared(snapshot_id=snapshot_id):
            return TraceEvent.PREPARED, {"snapshot": snapshot_id}
        case events.CommitDue(snapshot_id=snapshot_id, head=head, tag=tag):
            return TraceEvent.ATTEMPT, {"snapshot": snapshot_id, "head": head, "tag": tag}
        case events.CommitEnded(ended=ended):
            return _end(ended)
    return _PLAIN.get(type(event))


def _end(ended: Outcome | BaseException | None) -> Step:
    match ended:
        case Committed(snapshot_id=snapshot_id):
            return TraceEvent.COMMITTED, {"snapshot": snapshot_id}
        case AlreadyCommitted(snapshot_id=found):
            return TraceEvent.KNOWN, {"snapshot": found}
        case None:
            return TraceEvent.AGAIN, {}
        case _:
            return _ENDS.get(type(ended), TraceEvent.FAILED), {}


def _facts(s: Situation, verdict: Verdict) -> dict[str, Any]:
    """All facts that a verdict can depend on."""
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
        "gone": verdict.rule >= FIRST_RULE_OF_HISTORY and s.rolled_back,
        "newest": _mark(s.newest_mark),
        "shown": s.snapshot_of_batch,
        "marked": s.has_own_mark,
        "elsewhere": s.marked_elsewhere or (s.newest_of_stream is not None and s.newest_of_stream.key != s.key),
        "complete": s.ancestry_complete,
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
    """The facts that a verdict depends on. Texts from the table are cut to 64 characters."""
    texts = {"query_id": written.query_id, "fingerprint": written.fingerprint, "end": written.end}
    return {"batch_id": written.batch_id, **{name: text[:64] for name, text in texts.items()}}


if __name__ == "__main__":
    trace_sinks()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
