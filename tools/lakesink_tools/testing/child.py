"""Child processes of the suite: drivers that are really killed, and executors that share nothing with the driver.

Started as ``python -m lakesink_tools.testing.child``, with one pickled request on standard input and the pickled answer
on standard output. Both come from the same suite on the same machine.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lakesink_catalog.failpoints import VARIABLE, reached
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.identity import Batch
from lakesink_tools.testing.points import Point
from lakesink_tools.testing.stream import Sink, Stream, cast_votes

if TYPE_CHECKING:
    from lakesink_tools.testing.checks.base import SinkUnderTest

PREFIX = "conformance."
"""Prefix of the names of `lakesink_tools.testing.points` in ``LAKESINK_FAILPOINTS``."""

PATIENCE_SECONDS = 120
READY = b"ready\n"
TRIES = 20

Request = Callable[[], Any]
"""Can be pickled: a partial of a function."""


def drive(
    suite: "type[SinkUnderTest]", target: Any, batch_ids: Sequence[int], run: int, *, together: bool = False
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


def start(request: Request, failpoints: str = "") -> "subprocess.Popen[bytes]":
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


def start_together(drives: Sequence[Callable[..., None]]) -> "list[subprocess.Popen[bytes]]":
    """Start drivers that wait for each other, so that they begin at the same moment."""
    children = [start(partial(drive, together=True)) for drive in drives]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == READY, f"a process did not start: {ended(child)[2]}"
    for child in children:
        _send(child, b"\n")
    return children


def _send(child: "subprocess.Popen[bytes]", data: bytes) -> None:
    assert child.stdin is not None
    child.stdin.write(data)
    child.stdin.flush()


def ended(child: "subprocess.Popen[bytes]") -> tuple[int, bytes, str]:
    """Exit code, answer, and the end of standard error of a child process; kills it after a time limit."""
    try:
        answer, errors = child.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        answer, errors = child.communicate()
    return child.returncode, answer, errors.decode(errors="replace")[-2000:]


def answered(child: "subprocess.Popen[bytes]") -> Any:
    """The answer of a child process; an `AssertionError` if it failed."""
    code, answer, errors = ended(child)
    assert code == 0, f"a process ended with {code}: {errors}"
    return pickle.loads(answer)


def main() -> None:
    """Run the request from standard input."""
    request: Request = pickle.load(sys.stdin.buffer)
    pickle.dump(request(), sys.stdout.buffer)


if __name__ == "__main__":
    main()
