"""Each row once, each batch complete, and nothing visible before its commit."""

from functools import partial

import pytest

from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_tools.testing.checks.base import BATCHES, BY_PROCESS, FIRST_MIDDLE_LAST, OTHER, SinkUnderTest, keeps
from lakesink_tools.testing.points import Phase, Point
from lakesink_tools.testing.promises import Promise
from lakesink_tools.testing.steps import Step, spread
from lakesink_tools.testing.stream import Cast, Stream, cast_votes, empty
from lakesink_tools.testing.tagged_rows import wrong_rows

MANY_TASKS = 64

EMPTY_JOBS: dict[str, Cast] = {"tasks without rows": empty, "no task": partial(cast_votes, tasks=0)}
EMPTY_BATCHES = {"first": {0}, "middle": {1}, "last": {BATCHES - 1}, "all": set(FIRST_MIDDLE_LAST)}


class RowChecks(SinkUnderTest):
    """Checks without a crash."""

    @keeps(Promise.ONCE)
    @pytest.mark.parametrize("tasks", [1, 3, MANY_TASKS])
    def test_each_row_of_each_batch_is_there_once(self, stream: Stream, tasks: int) -> None:
        """Batches of several tasks, each batch with a new driver."""
        for batch_id in range(BATCHES):
            outcome = stream.run(batch_id, cast=partial(cast_votes, tasks=tasks))
            assert isinstance(outcome, Committed), f"commit returned {outcome!r}, not Committed"
            found, wanted = (outcome.rows, outcome.recovered), (4 * tasks, False)
            assert found == wanted, f"commit returned (rows, recovered) {found}, not {wanted}"
        stream.check(*range(BATCHES))

    @keeps(Promise.ONCE)
    def test_one_process_may_run_many_batches(self, stream: Stream) -> None:
        """One sink object for all batches, as in a running query."""
        stream.goes_on(*range(BATCHES * 4), sink=stream.open_sink())

    @keeps(Promise.WHOLE)
    def test_readers_see_a_batch_after_its_commit_and_not_before(self, stream: Stream) -> None:
        """A reader reads at every point."""

        def look(point: Point, batch: Batch) -> None:
            there = batch.batch_id + 1 if point.committed else batch.batch_id
            found = wrong_rows(stream.seen(), stream.candidates, range(there))
            assert not found, f"{point}: {found}"

        for batch_id in range(BATCHES):
            stream.run(batch_id, at_point=look)

    @keeps(Promise.WHOLE)
    def test_readers_see_all_or_nothing_at_every_line_of_commit(self, stream: Stream) -> None:
        """A reader reads before each step of commit in the sink's own code, or before many of them.

        In every second batch they are spread over all steps, also over those in the middle of a loop.
        """
        steps = self.steps_of_commit(stream, 0)
        chosen = self.chosen(steps, "commit")
        between = [steps[number] for number in spread(len(steps), self.most_steps)]
        for batch_id in range(1, BATCHES):

            def look(now: Step, before: int = batch_id) -> None:
                seen = stream.seen() if any(now.is_at(step) for step in (chosen, between)[before % 2]) else {}
                wanted = range(before + 1 if before in seen else before)
                found = wrong_rows(seen, stream.candidates, wanted) if seen else ""
                assert not found, f"before {now} of commit: {found}"

            self.steps_of_commit(stream, batch_id, look)
            stream.check(*range(batch_id + 1))

    @keeps(Promise.EMPTY)
    @pytest.mark.parametrize("job", EMPTY_JOBS)
    @pytest.mark.parametrize("which", EMPTY_BATCHES)
    def test_an_empty_batch_is_committed_and_known_when_it_comes_back(
        self, stream: Stream, which: str, job: str
    ) -> None:
        """The first batch is empty, one in the middle, the last, or all of them."""
        for batch_id in range(BATCHES):
            cast = EMPTY_JOBS[job] if batch_id in EMPTY_BATCHES[which] else cast_votes
            outcome = stream.run(batch_id, cast=cast)
            assert isinstance(outcome, Committed), f"commit returned {outcome!r}, not Committed"
            again = stream.run(batch_id, cast=cast_votes)
            assert isinstance(again, AlreadyCommitted), f"batch {batch_id} was replayed, but begin did not find it"
        stream.check(*range(BATCHES))

    @keeps(Promise.BEGIN)
    def test_begin_changes_nothing_and_may_be_called_again(self, stream: Stream) -> None:
        """One process and others call it, before and after the batch is committed."""
        stream.run(0)
        sink = stream.open_sink()
        for who in (sink, sink, stream.open_sink()):
            stream.begin(who, 1)
            stream.check(0)
        stream.run(1, sink=sink)
        for who in (sink, sink, stream.open_sink()):
            found = who.begin(stream.batch(1))
            assert isinstance(found, AlreadyCommitted), f"begin returned {found!r} for a committed batch"
        stream.check(0, 1)

    @keeps(Promise.REPLAY)
    @BY_PROCESS
    @pytest.mark.parametrize("batches", [1, BATCHES])
    def test_a_replayed_batch_is_neither_written_nor_committed(self, stream: Stream, batches: int, by: str) -> None:
        """Spark repeats its last batch after most crashes."""
        sink = stream.open_sink()
        stream.run_all(*range(batches), sink=sink)
        jobs = list(stream.jobs)
        points: list[Point] = []
        replaying = stream.open_sink() if by == OTHER else sink
        outcome = stream.run(batches - 1, sink=replaying, at_point=lambda point, _: points.append(point))
        assert isinstance(outcome, AlreadyCommitted), f"the outcome is {outcome!r}, not AlreadyCommitted"
        assert stream.jobs == jobs, "a job ran for a batch that was committed"
        assert {point.phase for point in points} == {Phase.BEGIN}, "begin did not return AlreadyCommitted"
        stream.goes_on(batches, sink=replaying)
