"""Real processes: executors that share nothing with the driver, drivers that are killed, two concurrent drivers."""

import itertools
import signal
from functools import partial
from typing import Any

from lakesink_protocol.two_phase import TaskWriter
from lakesink_tools.testing.checks.base import SinkUnderTest, keeps
from lakesink_tools.testing.child import PREFIX, answered, drive, ended, start, start_together
from lakesink_tools.testing.points import KILL_POINTS, Point
from lakesink_tools.testing.promises import Promise
from lakesink_tools.testing.stream import Stream, wrote
from lakesink_tools.testing.tagged_rows import Attempt

RACERS = 2
RACED_BATCHES = 8


def rows_of(batch_id: int, run: int) -> frozenset[int]:
    """The positions that a child process's job votes for."""
    return frozenset(at for task in range(3) for at in Attempt(batch_id, run, task).positions)


class ProcessChecks(SinkUnderTest):
    """Checks with the suite's own processes."""

    @keeps(Promise.TRAVELS)
    def test_tasks_run_in_other_processes(self, stream: Stream) -> None:
        """The writer is sent as a pickle, the receipt returns as bytes."""

        def elsewhere(writer: TaskWriter, batch_id: int, run: int) -> tuple[list[bytes], list[int]]:
            attempts = [Attempt(batch_id, run, task) for task in range(2)]
            votes = list(map(answered, [start(partial(wrote, writer, attempt)) for attempt in attempts]))
            return votes, [at for attempt in attempts for at in attempt.positions]

        stream.run(0)
        stream.run(1, cast=elsewhere)
        stream.check(0, 1)

    @keeps(Promise.CRASH)
    def test_a_driver_is_killed_at_every_point(self, stream: Stream, target: Any) -> None:
        """SIGKILL: each driver completes the previous driver's batch, and dies in the next batch, at the next point."""
        points: list[Point | str] = [*KILL_POINTS, *self.failpoints]
        for batch_id, point in enumerate(points):
            run = next(stream.runs)
            batches = tuple(range(max(0, batch_id - 1), batch_id + 1))
            for of in batches:
                stream.candidates[of].append(rows_of(of, run))
            name = f"{PREFIX}{point}" if isinstance(point, Point) else point
            driver = start(partial(drive, type(self), target, batches, run), f"{name}@{batch_id}=kill")
            code, _, errors = ended(driver)
            assert code == -signal.SIGKILL, f"the driver should have died at {name}, but ended with {code}: {errors}"
            landed = point.committed if isinstance(point, Point) else batch_id in stream.seen()
            stream.check(*range(batch_id + 1 if landed else batch_id), when=f"after SIGKILL at {point}")
        stream.goes_on(len(points) - 1, len(points))

    @keeps(Promise.RIVAL)
    def test_two_drivers_run_the_same_batches_at_once(self, stream: Stream, target: Any) -> None:
        """Two processes on one checkpoint: the later one finds the batch, or is refused and tries again."""
        batches = tuple(range(RACED_BATCHES))
        runs = [next(stream.runs) for _ in range(RACERS)]
        for batch_id, run in itertools.product(batches, runs):
            stream.candidates[batch_id].append(rows_of(batch_id, run))
        drives = [partial(drive, type(self), target, batches, run) for run in runs]
        list(map(answered, start_together(drives)))
        stream.check(*batches)
        stream.goes_on(RACED_BATCHES)
