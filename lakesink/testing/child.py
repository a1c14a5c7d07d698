"""Processes of the suite's own: a driver that is really killed, an executor that shares nothing with the driver.

Started as ``python -m lakesink.testing.child``, with one pickled request on standard input and the pickled answer on
standard output. Both come from the same suite on the same machine.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from lakesink.testing.points import Point
from lakesink.testing.rows import Attempt
from lakesink.testing.stream import Sink, Stream, cast_votes, wrote
from lakesink_catalog.failpoints import VARIABLE, reached
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.identity import Batch
from lakesink_protocol.two_phase import TaskWriter

PREFIX = "conformance."
"""Before the names of `lakesink.testing.points`, where they stand in ``LAKESINK_FAILPOINTS``."""

PATIENCE_SECONDS = 120
READY = b"ready\n"


class OpensSink(Protocol):
    """The part of a suite that a child process needs; see `lakesink.testing.checks.base.SinkUnderTest`."""

    def open_sink(self, target: Any) -> Sink:
        """The sink."""


@dataclass(frozen=True, slots=True)
class Work:
    """One task's attempt in a process of its own.

    Attributes:
        writer: What the driver ships.
        attempt: The rows.
    """

    writer: TaskWriter
    attempt: Attempt

    def do(self) -> bytes:
        """The receipt."""
        return wrote(self.writer, self.attempt)


@dataclass(frozen=True, slots=True)
class Drive:
    """A driver in a process of its own.

    Attributes:
        suite: Class of the suite.
        target: Where the sink writes.
        batch_ids: Batches to run.
        run: Number of its jobs.
        tries: How often a batch is started again after an error of lakesink.
        waits: It says when it is ready, and begins when it is told to.
    """

    suite: type[OpensSink]
    target: Any
    batch_ids: tuple[int, ...]
    run: int
    tries: int = 1
    waits: bool = False

    def do(self) -> None:
        """Run the batches, each by the sink that the process opens once."""
        stream = Stream(partial(self.suite().open_sink, self.target), lambda: ())
        sink = stream.open_sink()
        if self.waits:
            sys.stdout.buffer.write(READY)
            sys.stdout.flush()
            sys.stdin.buffer.readline()
        for batch_id in self.batch_ids:
            self._run(stream, sink, batch_id)

    def _run(self, stream: Stream, sink: Sink, batch_id: int) -> None:
        for attempt in range(1, self.tries + 1):
            try:
                stream.run(
                    batch_id, sink=sink, meet=_failpoint, cast=lambda writer, of, _: cast_votes(writer, of, self.run)
                )
            except LakesinkError:
                if attempt == self.tries:
                    raise
            else:
                return


def _failpoint(point: Point, batch: Batch) -> None:
    reached(f"{PREFIX}{point}", batch.batch_id)


def start(request: Work | Drive, failpoints: str = "") -> "subprocess.Popen[bytes]":
    """Start a child process. It has this process's path of imports.

    Args:
        request: What it does.
        failpoints: Its ``LAKESINK_FAILPOINTS``.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), VARIABLE: failpoints}
    child = subprocess.Popen(  # noqa: S603 - this very Python and module
        [sys.executable, "-m", __name__],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin is not None
    child.stdin.write(pickle.dumps(request))
    if isinstance(request, Drive) and request.waits:
        child.stdin.flush()
    else:
        child.stdin.close()
        child.stdin = None
    return child


def start_together(drives: Sequence[Drive]) -> "list[subprocess.Popen[bytes]]":
    """Start drivers that wait for one another: however long each takes to start, they begin at one moment."""
    children = [start(replace(drive, waits=True)) for drive in drives]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == READY, f"a process did not start: {ended(child)[2]}"
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.close()
        child.stdin = None
    return children


def ended(child: "subprocess.Popen[bytes]") -> tuple[int, bytes, str]:
    """Exit code, answer, and the end of what a child process said on standard error; it is killed if it is too slow."""
    try:
        answer, said = child.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        answer, said = child.communicate()
    return child.returncode, answer, said.decode(errors="replace")[-2000:]


def answered(child: "subprocess.Popen[bytes]") -> Any:
    """The answer of a child process that ends well.

    Raises:
        AssertionError: It did not.
    """
    code, answer, said = ended(child)
    assert code == 0, f"a process ended with {code}: {said}"
    return pickle.loads(answer)  # noqa: S301 - from our own child


def all_answered(children: Sequence["subprocess.Popen[bytes]"]) -> list[Any]:
    """The answers of processes that run side by side."""
    return [answered(child) for child in children]


def main() -> None:
    """Do what standard input says."""
    request: Work | Drive = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
    pickle.dump(request.do(), sys.stdout.buffer)


if __name__ == "__main__":
    main()
