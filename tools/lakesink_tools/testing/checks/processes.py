"""Real processes: executors that share nothing with the driver, drivers that are killed, two concurrent drivers.

A child process is started as ``python -m`` and the name of this module, with one pickled request on standard input and
the pickled answer on standard output. Both come from the same suite on the same machine.
"""

import itertools
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from lakesink_catalog.failpoints import VARIABLE, reached
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.identity import Batch
from lakesink_protocol.two_phase import TaskWriter
from lakesink_tools.testing.checks.base import SinkUnderTest, keeps
from lakesink_tools.testing.points import KILL_POINTS, Point
from lakesink_tools.testing.promises import Promise
from lakesink_tools.testing.stream import Sink, Stream, cast_votes, wrote
from lakesink_tools.testing.tagged_rows import Attempt

PREFIX = "conformance."
"""Prefix of the names of `lakesink_tools.testing.points` in ``LAKESINK_FAILPOINTS``."""

PATIENCE_SECONDS = 120
READY = b"ready\n"
TRIES = 20

Request = Callable[[], Any]
"""Can be pickled: a partial of a function."""

RACERS = 2
RACED_BATCHES = 8


def drive(
    suite: type[SinkUnderTest], target: Any, batch_ids: Sequence[int], run: int, *, together: bool = False
) -> None:
    """A driver in its own process: runs the batches, all with one sink, as the job of this number.

    With `together`, it reports that it is ready and waits for a signal. It retries a batch that ends with an error of
    lakesink.
    """
    stream = Stream(partial(suite().open_sink, target), lambda: ())
    sink = stream.open_sink()
    if together:
        sys.stdout.buffer.write(READY)
        sys.stdout.flush()
        sys.stdin.buffer.readline()
    for batch_id in batch_ids:
        if not _runs(stream, sink, batch_id, run, tries=TRIES if together else 1):
            return  # the other driver was faster: the rows show whether it wrote every batch


def _runs(stream: Stream, sink: Sink, batch_id: int, run: int, *, tries: int) -> bool:
    def failpoint(point: Point, batch: Batch) -> None:
        reached(f"{PREFIX}{point}", batch.batch_id)

    for _ in range(tries):
        try:
            stream.run(batch_id, sink=sink, at_point=failpoint, cast=lambda writer, of, _: cast_votes(writer, of, run))
        except LakesinkError:
            if tries == 1:
                raise
        else:
            return True
    return False


def start(request: Request, failpoints: str = "") -> subprocess.Popen[bytes]:
    """Start a child process, with this process's import path and the given ``LAKESINK_FAILPOINTS``."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), VARIABLE: failpoints}
    child = subprocess.Popen(  # noqa: S603 - this very Python and module
        [sys.executable, "-m", __name__],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _send(child, pickle.dumps(request))
    return child


def start_together(drives: Sequence[Callable[..., None]]) -> list[subprocess.Popen[bytes]]:
    """Start drivers that wait for each other, so that they begin at the same moment."""
    children = [start(partial(drive, together=True)) for drive in drives]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == READY, f"a process did not start: {ended(child)[2]}"
    for child in children:
        _send(child, b"\n")
    return children


def _send(child: subprocess.Popen[bytes], data: bytes) -> None:
    assert child.stdin is not None
    child.stdin.write(data)
    child.stdin.flush()


def ended(child: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    """Exit code, answer, and the end of standard error of a child process; kills it after a time limit."""
    try:
        answer, errors = child.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        answer, errors = child.communicate()
    return child.returncode, answer, errors.decode(errors="replace")[-2000:]


def answered(child: subprocess.Popen[bytes]) -> Any:
    """The answer of a child process; an `AssertionError` if it failed."""
    code, answer, errors = ended(child)
    assert code == 0, f"a process ended with {code}: {errors}"
    return pickle.loads(answer)


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


def main() -> None:
    """Run the request from standard input."""
    request: Request = pickle.load(sys.stdin.buffer)
    pickle.dump(request(), sys.stdout.buffer)


if __name__ == "__main__":
    main()
