"""Accepts the logs of real drivers if, and only if, the model could have made them.

Run drivers with ``LAKESINK_TRACE=<file>`` (`testkit.tracing.VARIABLE`): any number of processes, one file, from
the first commit of a sink on, whatever kills them. Then ``check(file.read_text().splitlines())`` returns what is
`Broken`; an empty list says that each step was one of the model's.

Three things are checked. *Each driver* takes only steps of `proof.model.steps.STEPS`, misses none, and does with each
what it has just seen: it decides by the protocol's table, uses only what somebody prepared for this very batch, sends
what it prepared on the head and the tag that it looked at, and ends as its last look or answer says. *All drivers of a
sink* share one ledger: what a look shows was sent before by somebody, the entry and the tag move together, and each
entry is followed by one commit only, whoever sent it. *Time*: no look shows less than what somebody had seen before it
began. Merges, audit tags, foreign commits, expiry and rollbacks leave no lines; they are seen in the looks, if at all.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from lakesink_protocol.identity import SinkKind
from proof.model.history import History
from proof.model.lines import Facts, Line, NoStep, Written, parse_line
from proof.model.steps import AFTER, State
from proof.model.verdicts import wrong_verdict
from testkit.tracing import TraceEvent

STREAM = SinkKind.STREAM.value


@dataclass(frozen=True, slots=True)
class Broken:
    """A step that the model does not take.

    Attributes:
        line: Of the log, from 1.
        driver: Who; empty if the line does not tell.
        what: What is wrong, in words.
    """

    line: int
    driver: str
    what: str

    def __str__(self) -> str:
        return f"line {self.line}, driver {self.driver}: {self.what}"


def check(lines: Iterable[str]) -> list[Broken]:
    """What the model could not have done.

    Args:
        lines: A whole log, in order; of any number of drivers, sinks and tables.
    """
    checker = _Checker()
    for number, text in enumerate(lines, 1):
        if text.strip():
            checker.take(number, text)
    checker.end()
    return sorted(checker.broken, key=lambda broken: broken.line)


def of_streams(lines: Iterable[str]) -> list[str]:
    """The lines of streams alone: the model has no applications, such as the one that writes a stream's dead letters.

    Args:
        lines: As for `check`.
    """
    found = list(lines)
    applications = {said["driver"] for said in map(json.loads, found) if said.get("kind", STREAM) != STREAM}
    return [line for line in found if json.loads(line)["driver"] not in applications]


class _Wrong(Exception):
    """A step that the model does not take; caught for each line."""


@dataclass(slots=True)
class _Driver:
    history: History
    state: State = State.IDLE
    steps: int = 0
    last_line: int = 0
    batch: Written | None = None
    begun_on: int | None = None
    seen: Facts | None = None
    prepared: int | None = None


@dataclass(slots=True)
class _Checker:
    broken: list[Broken] = field(default_factory=list)
    drivers: dict[str, _Driver] = field(default_factory=dict)
    histories: dict[tuple[str, str], History] = field(default_factory=dict)

    def take(self, number: int, text: str) -> None:
        name = ""
        try:
            line = parse_line(number, text)
            name = line.driver
            driver = self._driver(line)
            _step(driver, line)
            _CHECKS.get(TraceEvent(line.event.partition(":")[0]), _pass)(driver, line)
            driver.last_line = number
        except (NoStep, _Wrong) as wrong:
            self.broken.append(Broken(number, name, str(wrong)))

    def end(self) -> None:
        for history in self.histories.values():
            self.broken.extend(Broken(number, driver, what) for number, driver, what in history.troubles())

    def _driver(self, line: Line) -> _Driver:
        found = self.drivers.get(line.driver)
        if found is not None:
            return found
        if line.facts is None:
            raise _Wrong(f"a driver's first step is {line.event}")
        history = self.histories.setdefault(line.facts.place, History(first_line=line.number))
        return self.drivers.setdefault(line.driver, _Driver(history))


def _step(driver: _Driver, line: Line) -> None:
    """The step is the next one, and one that the model takes here."""
    expected, driver.steps = driver.steps + 1, line.step
    if line.step != expected:
        raise _Wrong(f"step {line.step} where step {expected} was due")
    before, after = driver.state, AFTER.get((driver.state, line.event))
    if after is None:
        raise _Wrong(f"the model does not do {line.event} when {before.value}")
    driver.state = after
    begins = before is State.IDLE
    if not begins and driver.batch is not None and line.batch_id != driver.batch.batch_id:
        raise _Wrong(f"{line.event} of batch {line.batch_id} while batch {driver.batch.batch_id} is open")


def _begin(driver: _Driver, line: Line) -> None:
    assert line.facts is not None
    driver.batch, driver.prepared, driver.begun_on = line.facts.batch, None, line.facts.entry_snapshot
    _look(driver, line)


def _look(driver: _Driver, line: Line) -> None:
    facts = line.facts
    assert facts is not None
    driver.seen = facts
    if facts.batch != driver.batch:
        raise _Wrong("a look on behalf of another batch")
    wrong = wrong_verdict(facts) or driver.history.wrong_sight(line, since=driver.last_line)
    if wrong:
        raise _Wrong(wrong)


def _prepared(driver: _Driver, line: Line) -> None:
    driver.prepared = line.snapshot
    assert driver.batch is not None
    assert line.snapshot is not None
    if not driver.history.prepare(line.snapshot, driver.batch, driver.begun_on):
        raise _Wrong("a snapshot id that was used before")


def _recovered(driver: _Driver, line: Line) -> None:
    assert line.snapshot is not None
    driver.prepared, made = line.snapshot, driver.history.prepared.get(line.snapshot)
    if made is None:
        raise _Wrong("recovered what nobody prepared")
    if made.batch != driver.batch:
        raise _Wrong("recovered what was prepared for another batch")
    if made.follows != driver.begun_on:
        raise _Wrong("recovered what was prepared on another ledger entry")


def _attempt(driver: _Driver, line: Line) -> None:
    seen = driver.seen
    assert seen is not None
    if line.snapshot != driver.prepared:
        raise _Wrong("sent what this driver has not prepared")
    made = driver.history.prepared.get(line.snapshot or 0)
    if made is None or seen.entry_snapshot != made.follows:
        raise _Wrong("sent what was prepared on another ledger entry")
    if (line.head, line.tag) != (seen.head, seen.tag):
        raise _Wrong("asserted another head or tag than was looked at")
    driver.history.attempt(made.snapshot)


def _answer(driver: _Driver, line: Line) -> None:
    if line.event.endswith(":landed") and driver.prepared is not None:
        driver.history.landed(line, driver.prepared)


def _committed(driver: _Driver, line: Line) -> None:
    if line.snapshot != driver.prepared:
        raise _Wrong("committed what this driver has not prepared")
    _found(driver, line)


def _known(driver: _Driver, line: Line) -> None:
    if line.snapshot == driver.prepared:
        raise _Wrong("took its own commit for another's")
    _found(driver, line)


def _found(driver: _Driver, line: Line) -> None:
    """What a look has found is what the look showed; an answer has shown this driver's own."""
    seen = driver.seen
    assert seen is not None
    if seen.verdict == "skip" and line.snapshot not in (seen.shown, seen.entry_snapshot):
        raise _Wrong("found another snapshot than the look showed")


def _pass(_: _Driver, __: Line) -> None:
    """All there is to say of this step is that it is in the table."""


_CHECKS = {
    TraceEvent.BEGIN: _begin,
    TraceEvent.LOOK: _look,
    TraceEvent.PREPARED: _prepared,
    TraceEvent.RECOVERED: _recovered,
    TraceEvent.ATTEMPT: _attempt,
    TraceEvent.ANSWER: _answer,
    TraceEvent.COMMITTED: _committed,
    TraceEvent.KNOWN: _known,
}
