"""The lines of a trace as values: what `testkit.tracing` writes, read without trusting it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from testkit.tracing import TraceEvent


class NoStep(ValueError):
    """A line is not the line of a step."""


@dataclass(frozen=True, slots=True)
class Written:
    """A batch as an entry or a mark tells it.

    Attributes:
        batch_id: Id.
        query_id: Query.
        fingerprint: What it read.
        end: Digest of where it ended.
    """

    batch_id: int
    query_id: str
    fingerprint: str
    end: str


@dataclass(frozen=True, slots=True)
class Facts:
    """One look at the table.

    Attributes:
        place: Table and sink.
        kind: ``stream`` or ``txn``.
        batch: The batch that is asked for.
        start: Digest of where it starts; None if unknown.
        rule: Number of the rule that decided.
        verdict: ``commit``, ``skip``, or the reason of a refusal.
        accepted: The overruled refusal; empty if none.
        head: The branch's snapshot.
        tag: Where the ledger tag points.
        tagged: The sink sets its tag.
        entry: The ledger entry.
        entry_snapshot: Its snapshot.
        gone: The entry's snapshot was rolled back.
        newest: M, the newest own mark under the head.
        shown: The batch's own snapshot under the head.
        marked: Some own mark is under the head.
        elsewhere: Marks of the sink for another branch are under the head.
        complete: The walk reached the table's first snapshot.
    """

    place: tuple[str, str]
    kind: str
    batch: Written
    start: str | None
    rule: int
    verdict: str
    accepted: str
    head: int | None
    tag: int | None
    tagged: bool
    entry: Written | None
    entry_snapshot: int | None
    gone: bool
    newest: Written | None
    shown: int | None
    marked: bool
    elsewhere: bool
    complete: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One step of one driver.

    Attributes:
        number: Of the line in the log, from 1.
        driver: Who.
        step: Number of the step among the driver's, from 1.
        event: What, as `proof.model.steps` spells it.
        batch_id: Of the driver's batch.
        facts: What was seen, of a look.
        snapshot: Of what is prepared, sent or found.
        head: Asserted head, of an attempt.
        tag: Asserted tag, of an attempt.
    """

    number: int
    driver: str
    step: int
    event: str
    batch_id: int
    facts: Facts | None = None
    snapshot: int | None = None
    head: int | None = None
    tag: int | None = None


def parse_line(number: int, text: str) -> Line:
    """One line of a trace.

    Raises:
        NoStep: It is torn, or not of a step.
    """
    try:
        said = json.loads(text)
        event = TraceEvent(_typed(said, "event", str))
        return _BY_EVENT.get(event, _plain)(number, said, event)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NoStep("this is not the line of a step") from error


def _plain(number: int, said: Mapping[str, Any], event: TraceEvent) -> Line:
    driver, step, batch_id = _typed(said, "driver", str), _typed(said, "step", int), _typed(said, "batch_id", int)
    snapshot = said.get("snapshot")
    return Line(number, driver, step, event.value, batch_id, snapshot=None if snapshot is None else int(snapshot))


def _look(number: int, said: Mapping[str, Any], event: TraceEvent) -> Line:
    facts = _facts(said)
    kind = facts.verdict if facts.verdict in ("commit", "skip") else "refuse"
    return replace(_plain(number, said, event), event=f"{event.value}:{kind}", facts=facts)


def _made(number: int, said: Mapping[str, Any], event: TraceEvent) -> Line:
    return replace(_plain(number, said, event), snapshot=_typed(said, "snapshot", int))


def _attempt(number: int, said: Mapping[str, Any], event: TraceEvent) -> Line:
    return replace(_made(number, said, event), head=_optional(said, "head", int), tag=_optional(said, "tag", int))


def _answer(number: int, said: Mapping[str, Any], event: TraceEvent) -> Line:
    return replace(_plain(number, said, event), event=f"{event.value}:{_typed(said, 'shows', str)}")


_BY_EVENT: dict[TraceEvent, Callable[[int, Mapping[str, Any], TraceEvent], Line]] = {
    TraceEvent.BEGIN: _look,
    TraceEvent.LOOK: _look,
    TraceEvent.PREPARED: _made,
    TraceEvent.RECOVERED: _made,
    TraceEvent.ATTEMPT: _attempt,
    TraceEvent.ANSWER: _answer,
}


def _facts(said: Mapping[str, Any]) -> Facts:
    entry = said["entry"]
    return Facts(
        place=(_typed(said, "table", str), _typed(said, "sink", str)),
        kind=_typed(said, "kind", str),
        batch=_written({**said["batch"], "batch_id": said["batch_id"]}),
        start=_optional(said["batch"], "start", str),
        rule=_typed(said, "rule", int),
        verdict=_typed(said, "verdict", str),
        accepted=_typed(said, "accepted", str),
        head=_optional(said, "head", int),
        tag=_optional(said, "tag", int),
        tagged=_typed(said, "tagged", bool),
        entry=None if entry is None else _written(entry),
        entry_snapshot=None if entry is None else _typed(entry, "snapshot", int),
        gone=_typed(said, "gone", bool),
        newest=None if said["newest"] is None else _written(said["newest"]),
        shown=_optional(said, "shown", int),
        marked=_typed(said, "marked", bool),
        elsewhere=_typed(said, "elsewhere", bool),
        complete=_typed(said, "complete", bool),
    )


def _written(said: Mapping[str, Any]) -> Written:
    texts = (_typed(said, "query_id", str), _typed(said, "fingerprint", str), _typed(said, "end", str))
    return Written(_typed(said, "batch_id", int), *texts)


def _typed(said: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    value = said[name]
    if type(value) is not kind:
        raise TypeError(name)
    return value


def _optional(said: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    return None if said[name] is None else _typed(said, name, kind)
