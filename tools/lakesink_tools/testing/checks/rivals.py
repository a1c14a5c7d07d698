"""If two drivers run one batch, one commits it, at any step at which the other one interferes.

The second driver runs on its own thread, while the driver under test waits before a step. A rival that needs a lock of
the driver cannot end before the driver continues. The driver therefore continues after a time limit, in parallel with
the rival. A slow machine may cut a rival short, but no sink fails because of that.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Any

import pytest

from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.two_phase import TaskWriter
from lakesink_tools.testing.checks.base import FIRST_MIDDLE_LAST, SinkUnderTest, keeps
from lakesink_tools.testing.checks.crashes import at, ended_at
from lakesink_tools.testing.points import CRASH_POINTS, Died, Phase, Point
from lakesink_tools.testing.promises import Promise
from lakesink_tools.testing.steps import Step, stepping
from lakesink_tools.testing.stream import Stream, cast_votes
from lakesink_tools.testing.tagged_rows import SeenRows, wrong_rows

PATIENCE_SECONDS = 5.0
BLOCKED_SECONDS = 0.2
"""Time limit for a rival if a lock blocked the previous one."""

END_SECONDS = 240.0

Ended = Outcome | Exception | None


@dataclass(slots=True)
class Party:
    """One driver, and the votes of its own jobs."""

    votes: list[frozenset[int]] = field(default_factory=list)  # the positions of each job
    ended: Ended = None  # its outcome or its error

    def cast(self, writer: TaskWriter, batch_id: int, run: int) -> tuple[list[bytes], list[int]]:
        """Run a job of its own."""
        votes, positions = cast_votes(writer, batch_id, run)
        self.votes.append(frozenset(positions))
        return votes, positions

    def wrong_outcome(self, seen: frozenset[int]) -> str:
        """The error in its outcome, given the visible rows of the batch; empty if there is none."""
        if isinstance(self.ended, (Committed, AlreadyCommitted)) and not seen:
            return f"returned {_named(self.ended)}, but readers see no row of the batch"
        if not isinstance(self.ended, Committed):
            return ""
        if not self.ended.recovered and self.votes and seen != self.votes[-1]:
            return "returned Committed, but readers see the rows of the other driver"
        if self.ended.rows != len(seen):
            return f"returned Committed with {self.ended.rows} rows, but readers see {len(seen)}"
        return ""

    def __str__(self) -> str:
        return _named(self.ended)


@dataclass(slots=True)
class Rival:
    """The other driver."""

    run: Callable[[Party], Ended]  # runs it as the given party
    stream: Stream
    party: Party = field(default_factory=Party)
    saw: SeenRows | None = None  # what readers saw after it, if it ended before the driver continued
    _thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        """True if it was started."""
        return self._thread is not None

    def start(self, patience_seconds: float) -> bool:
        """Start it and wait. False if a lock of the driver blocks it."""

        def go() -> None:
            try:
                self.party.ended = self.run(self.party)
            except Exception as error:  # noqa: BLE001 - judged later
                self.party.ended = error

        self._thread = threading.Thread(target=go, name="lakesink-rival", daemon=True)
        self._thread.start()
        self._thread.join(patience_seconds)
        if self._thread.is_alive():
            return False
        self.saw = self.stream.seen()
        return True

    def finish(self) -> None:
        """Wait for its end, after the driver has ended."""
        assert self._thread is not None
        self._thread.join(END_SECONDS)
        assert not self._thread.is_alive(), "the rival still waits, although the other driver has ended"


@dataclass(slots=True)
class Patience:
    """How long a driver waits for a rival: long, unless the previous rival was blocked."""

    blocked: bool = False  # the previous rival was blocked
    places: set[str] = field(default_factory=set)  # places at which rivals were blocked

    def run(self, rival: Rival, place: str) -> None:
        """Start a rival and wait for it."""
        long = not self.blocked and place not in self.places
        self.blocked = not rival.start(PATIENCE_SECONDS if long else BLOCKED_SECONDS)
        if self.blocked:
            self.places.add(place)


def _named(ended: Ended) -> str:
    return "nothing" if ended is None else type(ended).__name__


COMMITTED = {"that batch": 1, "that batch and the next": 2}

Made = Callable[[Stream, int], Callable[[Party], Ended]]


def from_the_start(stream: Stream, batch_id: int) -> Callable[[Party], Ended]:
    """A driver that has just started; it uses the prepared batch."""
    return lambda party: stream.run(batch_id, cast=party.cast)


def and_goes_on(stream: Stream, batch_id: int) -> Callable[[Party], Ended]:
    """A driver that has just started, and also runs the next batch."""

    def run(party: Party) -> Ended:
        ended = stream.run(batch_id, cast=party.cast)
        stream.run(batch_id + 1)
        return ended

    return run


def with_rows_of_its_own(stream: Stream, batch_id: int) -> Callable[[Party], Ended]:
    """A driver that began with the other one, and has prepared its own rows for the batch."""
    party, sink = Party(), stream.open_sink()
    transaction, prepared = stream.pre_commit(sink, batch_id, party.cast)

    def run(of: Party) -> Ended:
        of.votes = party.votes
        batch = stream.batch(batch_id)
        transaction.prepared_log.put(batch, {sink.name: prepared.payload})
        ended = sink.commit(transaction, prepared)
        transaction.prepared_log.landed(batch)
        return ended

    return run


RIVALS: dict[Phase, tuple[Made, ...]] = {
    Phase.BEGIN: (from_the_start, and_goes_on),
    Phase.PRE_COMMIT: (from_the_start, and_goes_on),
    Phase.RECOVER: (from_the_start, and_goes_on),
    Phase.COMMIT: (with_rows_of_its_own, from_the_start, and_goes_on),
}
"""The rivals for each phase. They take turns; in `commit`, each of them runs before every step."""

FIRST_STEPS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 22, 30, 45, 70, 120)
"""Steps of the first batch, each tried on its own target."""


class RivalChecks(SinkUnderTest):
    """Two drivers."""

    @keeps(Promise.RIVAL)
    @pytest.mark.parametrize("phase", RIVALS, ids=lambda phase: phase.value)
    def test_a_rival_commits_before_every_step(self, stream: Stream, phase: Phase) -> None:
        """The driver stops before a step of the phase, another driver runs its whole commit, the driver continues."""
        if phase is Phase.RECOVER:
            self.skip_unless_it_recovers(stream)
        stream.run(0)
        steps: list[Step] = []
        self._prepare_for(phase, stream, 1)
        self._driver(stream, 1, phase, steps.append)
        assert steps, f"{phase.value} runs no line that is stepped through: set stepped_packages"
        chosen, patience = self.chosen(steps, phase.value), Patience()
        in_turn = cycle(RIVALS[phase])
        for step in chosen:
            for make in RIVALS[phase] if phase is Phase.COMMIT else [next(in_turn)]:
                self._rival_at(stream, phase, make, step.is_at, patience)

    @keeps(Promise.RIVAL)
    @pytest.mark.parametrize("number", FIRST_STEPS)
    def test_a_rival_commits_before_a_step_of_the_first_begin(self, stream: Stream, number: int) -> None:
        """The target is empty: two drivers create what a sink creates first."""
        self._rival_at(stream, Phase.BEGIN, and_goes_on, lambda step: step.number == number, Patience())

    @keeps(Promise.RIVAL)
    @pytest.mark.parametrize("committed", COMMITTED)
    @pytest.mark.parametrize("point", CRASH_POINTS, ids=str)
    def test_a_driver_goes_on_after_another_one_committed(self, stream: Stream, point: Point, committed: str) -> None:
        """A zombie: it stops while another driver commits, and then continues. First, middle and last batch."""
        last = -1
        for _ in FIRST_MIDDLE_LAST:
            rival = range(last + 1, last + 1 + COMMITTED[committed])
            with suppress(LakesinkError):
                stream.run(rival[0], at_point=at(point, partial(stream.run_all, *rival)))
            last = rival[-1]
            stream.check(*range(last + 1))
            stream.run(last)
        stream.goes_on(last + 1)

    @keeps(Promise.RIVAL)
    def test_of_two_drivers_with_other_data_one_wins(self, stream: Stream) -> None:
        """The same batch id from two checkpoints: the second to commit must not add its rows."""
        stream.run(0)
        other = stream.batch(1, end=99)
        with suppress(LakesinkError):
            stream.run(1, at_point=at(Point(Phase.COMMIT, after=False), lambda: stream.run(other)))
        stream.check(0, 1)
        winner = stream.candidates[1][1]
        assert frozenset(stream.seen()[1]) == winner, "the rows that were committed first are missing"

    def _rival_at(
        self, stream: Stream, phase: Phase, make: Made, is_it: Callable[[Step], bool], patience: Patience
    ) -> None:
        """Run one batch, with a rival before one step."""
        batch_id, driver = len(stream.seen()), Party()
        self._prepare_for(phase, stream, batch_id)
        rival = Rival(make(stream, batch_id), stream)
        came_before: list[Step] = []

        def at_step(step: Step) -> None:
            if not rival.started and is_it(step):
                came_before.append(step)
                patience.run(rival, step.place)

        try:
            driver.ended = self._driver(stream, batch_id, phase, at_step, driver)
        except LakesinkError as error:  # an error that the seam does not define fails the check
            driver.ended = error
        if not rival.started:
            return
        rival.finish()
        try:
            self._judge(stream, batch_id, driver, rival)
        except AssertionError as found:
            who = make.__name__.replace("_", " ")
            raise AssertionError(
                f"another driver ({who}) committed batch {batch_id} before {came_before[0]} of {phase.value}: {found};"
                f" that driver returned {rival.party}, this one {driver}"
            ) from found

    def _prepare_for(self, phase: Phase, stream: Stream, batch_id: int) -> None:
        """For RECOVER, an earlier driver prepares the batch and dies."""
        if phase is Phase.RECOVER:
            ended_at(stream, Point(Phase.COMMIT, after=False), batch_id, Died())

    def _driver(
        self, stream: Stream, batch_id: int, phase: Phase, at_step: Callable[[Step], Any], party: Party | None = None
    ) -> Ended:
        """Run a driver whose steps in one phase are watched."""
        sink = stream.open_sink()

        def within(now: Phase) -> AbstractContextManager[object]:
            return stepping(self.packages_of(sink), at_step) if now is phase else nullcontext()

        return stream.run(batch_id, sink=sink, within=within, cast=(party or Party()).cast)

    def _judge(self, stream: Stream, batch_id: int, driver: Party, rival: Rival) -> None:
        """Each row once, visible rows stay, and both outcomes are true; then the stream continues."""
        seen = stream.seen()
        found = wrong_rows(seen, stream.candidates, seen)
        assert not found, found
        rows = frozenset(seen.get(batch_id, ()))
        for who, party in (("the other driver", rival.party), ("this driver", driver)):
            wrong = party.wrong_outcome(rows)
            assert not wrong, f"{who} {wrong}"
        if rival.saw is not None:
            changed = [at for at, there in rival.saw.items() if seen.get(at) != there]
            assert not changed, f"rows of batch {changed[0]}, which readers had seen, have disappeared or changed"
        newest = max(batch_id, *seen) if seen else batch_id
        stream.goes_on(*range(newest if batch_id in seen else batch_id, newest + 1))
