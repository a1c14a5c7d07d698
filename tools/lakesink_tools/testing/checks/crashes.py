"""A process dies, fails or is late at any point: the replay completes the batch, once. Crashes are data."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_protocol.two_phase import Durability
from lakesink_tools.testing.checks.base import BATCHES, BY_PROCESS, FIRST_MIDDLE_LAST, OTHER, SinkUnderTest, keeps
from lakesink_tools.testing.points import CRASH_POINTS, RECOVERY_POINTS, AtPoint, Died, Phase, Point
from lakesink_tools.testing.promises import Promise
from lakesink_tools.testing.steps import Step
from lakesink_tools.testing.stream import Stream, empty


class Failed(Exception):
    """An error, after which the process continues."""


def at(where: Point, act: Callable[[], object]) -> AtPoint:
    """Call `act` when a batch first reaches a point."""
    done: list[Point] = []

    def at_point(point: Point, _: Batch) -> None:
        if point == where and not done:
            done.append(point)
            act()

    return at_point


def ended_at(stream: Stream, where: Point, batch_id: int, error: BaseException, **how: object) -> None:
    """Run a batch that must end at a point with an error."""

    def fail() -> None:
        raise error

    try:
        stream.run(batch_id, at_point=at(where, fail), **how)  # type: ignore[arg-type] # passed on as they are
    except type(error):
        pass
    else:
        raise AssertionError(f"the batch did not reach {where}")


class CrashChecks(SinkUnderTest):
    """Crashes and failures at each point, for the first, a middle and the last batch."""

    @keeps(Promise.CRASH)
    @pytest.mark.parametrize("point", CRASH_POINTS, ids=str)
    def test_a_driver_dies_and_another_completes_its_batch(self, stream: Stream, point: Point) -> None:
        """The process dies without an abort, and its memory is lost. First, middle and last batch."""
        for batch_id in FIRST_MIDDLE_LAST:
            ended_at(stream, point, batch_id, Died())
            stream.check(*range(batch_id + 1 if point.committed else batch_id))
            stream.goes_on(batch_id)
        stream.goes_on(BATCHES)

    @keeps(Promise.CRASH)
    @pytest.mark.parametrize("point", CRASH_POINTS, ids=str)
    def test_a_driver_fails_and_the_same_sink_completes_its_batch(self, stream: Stream, point: Point) -> None:
        """The query restarts in the same process: the sink is asked to abort, and keeps its memory."""
        sink = stream.open_sink()
        for batch_id in FIRST_MIDDLE_LAST:
            ended_at(stream, point, batch_id, Failed(), sink=sink)
            stream.run(batch_id, sink=sink)
        stream.goes_on(BATCHES, sink=sink)

    @keeps(Promise.CRASH)
    @pytest.mark.parametrize("point", CRASH_POINTS, ids=str)
    def test_an_empty_batch_dies_and_is_completed(self, stream: Stream, point: Point) -> None:
        """A batch without rows has a place in the history too."""
        stream.run(0)
        ended_at(stream, point, 1, Died(), cast=empty)
        stream.run(1, cast=empty)
        stream.goes_on(2)

    @keeps(Promise.CRASH)
    def test_a_crash_at_any_line_of_commit_loses_and_doubles_nothing(self, stream: Stream) -> None:
        """A driver dies before a step of commit in the sink's own code; each batch at another step."""
        steps = self.steps_of_commit(stream, 0)
        for batch_id, step in enumerate(self.chosen(steps, "commit"), start=1):

            def die(now: Step, step: Step = step) -> None:
                if now.is_at(step):
                    raise Died

            with suppress(Died):
                self.steps_of_commit(stream, batch_id, die)
            stream.run(batch_id)
            stream.check(*range(batch_id + 1), when=f"after a crash before {step} of commit")

    @keeps(Promise.DURABILITY)
    @pytest.mark.parametrize("batch_id", FIRST_MIDDLE_LAST)
    def test_a_prepared_batch_is_used_again_if_it_survives_and_written_again_if_not(
        self, stream: Stream, batch_id: int
    ) -> None:
        """A driver dies just before commit. The prepared files are committed, or a new job writes the batch again."""
        stream.run_all(*range(batch_id))
        ended_at(stream, Point(Phase.COMMIT, after=False), batch_id, Died())
        jobs = len(stream.jobs)
        survives = stream.open_sink().durability is Durability.PREPARED_SURVIVES
        outcome = stream.run(batch_id)
        ran = len(stream.jobs) - jobs
        assert ran == (0 if survives else 1), (
            f"durability says the prepared batch {'survives' if survives else 'must be redone'}, and {ran} jobs ran"
            " after the crash" + (": does prepared_log find what it was given?" if survives else "")
        )
        assert isinstance(outcome, Committed), f"the outcome is {outcome!r}"
        assert outcome.recovered == survives, f"Committed.recovered is {outcome.recovered}"
        stream.check(*range(batch_id + 1))

    @keeps(Promise.DURABILITY)
    def test_what_was_prepared_for_other_data_is_not_used(self, stream: Stream) -> None:
        """The batch is repeated with another fingerprint: the prepared files belong to other data."""
        stream.run(0)
        ended_at(stream, Point(Phase.COMMIT, after=False), 1, Died())
        of_other_data = stream.candidates[1][-1]
        try:
            stream.run(stream.batch(1, end=99))
        except LakesinkError:
            stream.check(0)
        else:
            stream.check(0, 1)
            assert frozenset(stream.seen()[1]) != of_other_data, "rows were committed under another fingerprint"

    @keeps(Promise.CRASH)
    @pytest.mark.parametrize("point", RECOVERY_POINTS, ids=str)
    def test_the_driver_that_recovers_dies_too(self, stream: Stream, point: Point) -> None:
        """Three drivers for one batch."""
        stream.run(0)
        ended_at(stream, Point(Phase.COMMIT, after=False), 1, Died())
        if point.phase is Phase.RECOVER:
            self.skip_unless_it_recovers(stream)
        ended_at(stream, point, 1, Died())
        stream.goes_on(1, 2)

    @keeps(Promise.AGAIN)
    @BY_PROCESS
    def test_commit_may_be_called_twice(self, stream: Stream, by: str) -> None:
        """The driver calls it again, as after a lost answer to the first commit."""
        stream.run(0)
        sink, second = stream.open_sink(), stream.open_sink()
        other = stream.begin(second, 1)
        transaction, prepared = stream.prepare(sink, 1)
        found = other.prepared_log.find(stream.batch(1)) if by == OTHER else None
        recovered = second.recover(other, found[second.name]) if found else None
        sink.commit(transaction, prepared)
        again = sink.commit(transaction, prepared) if recovered is None else second.commit(other, recovered)
        assert isinstance(again, (Committed, AlreadyCommitted)), f"the second commit returned {again!r}"
        stream.check(0, 1)
        stream.goes_on(2)
