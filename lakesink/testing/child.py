"""Child processes of the suite: drivers that are really killed, and executors that share nothing with the driver.

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
from typing import TYPE_CHECKING, Any

from lakesink.testing.points import Point
from lakesink.testing.rows import Attempt
from lakesink.testing.stream import Sink, Stream, cast_votes, wrote
from lakesink_catalog.failpoints import VARIABLE, reached
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.identity import Batch
from lakesink_protocol.two_phase import TaskWriter

if TYPE_CHECKING:
    from lakesink.testing.checks.base import SinkUnderTest

PREFIX = "conformance."
"""Prefix of the names of `lakesink.testing.points` in ``LAKESINK_FAILPOINTS``."""

PATIENCE_SECONDS = 120
READY = b"ready\n"


@dataclass(frozen=True, slots=True)
class Work:
    """One attempt of a task, in its own process."""

    writer: TaskWriter  # as the driver ships it
    attempt: Attempt  # the rows

    def do(self) -> bytes:
        """Write the rows and return the receipt."""
        return wrote(self.writer, self.attempt)


@dataclass(frozen=True, slots=True)
class Drive:
    """A driver in its own process."""

    suite: "type[SinkUnderTest]"
    target: Any
    batch_ids: tuple[int, ...]
    run: int  # number of its jobs
    tries: int = 1  # attempts for a batch that ends with an error of lakesink
    waits: bool = False  # it reports when it is ready, and starts at a signal

    def do(self) -> None:
        """Run the batches, all with one sink."""
        stream = Stream(partial(self.suite().open_sink, self.target), lambda: ())
        sink = stream.open_sink()
        if self.waits:
            sys.stdout.buffer.write(READY)
            sys.stdout.flush()
            sys.stdin.buffer.readline()
        for batch_id in self.batch_ids:
            if not self._runs(stream, sink, batch_id):
                return  # it was overtaken: the rows show whether the other driver wrote every batch

    def _runs(self, stream: Stream, sink: Sink, batch_id: int) -> bool:
        for attempt in range(1, self.tries + 1):
            try:
                stream.run(
                    batch_id, sink=sink, meet=_failpoint, cast=lambda writer, of, _: cast_votes(writer, of, self.run)
                )
            except LakesinkError:
                if attempt == self.tries and not self.waits:
                    raise
            else:
                return True
        return False


def _failpoint(point: Point, batch: Batch) -> None:
    reached(f"{PREFIX}{point}", batch.batch_id)


def start(request: Work | Drive, failpoints: str = "") -> "subprocess.Popen[bytes]":
    """Start a child process, with this process's import path and the given ``LAKESINK_FAILPOINTS``."""
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
    """Start drivers that wait for each other, so that they begin at the same moment."""
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
    """Exit code, answer, and the end of standard error of a child process; kills it after a time limit."""
    try:
        answer, said = child.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        answer, said = child.communicate()
    return child.returncode, answer, said.decode(errors="replace")[-2000:]


def answered(child: "subprocess.Popen[bytes]") -> Any:
    """The answer of a child process; an `AssertionError` if it failed."""
    code, answer, said = ended(child)
    assert code == 0, f"a process ended with {code}: {said}"
    return pickle.loads(answer)  # noqa: S301 - from our own child


def main() -> None:
    """Run the request from standard input."""
    request: Work | Drive = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
    pickle.dump(request.do(), sys.stdout.buffer)


if __name__ == "__main__":
    main()
