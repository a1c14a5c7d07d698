"""Runs the demo's driver as a child process, follows its log, and leaves no process behind."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lakesink.checks.child import child, end
from lakesink.demo.child import driver_environment
from lakesink.demo.place import Place
from lakesink_catalog.failpoints import VARIABLE as FAILPOINTS

LONGEST_SECONDS = 900
DRIVER = "lakesink.demo.driver"
"""The module of the drivers, which is in their command line."""
_BATCH = re.compile(r" lakesink\.batch\.(?P<event>[a-z-]+) .*\bbatch=(?P<batch>\d+)(?: |$)")


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One batch, as the driver logged it."""

    event: str  # ``committed``, ``recovered``, ``already-committed``, ``failed``, ...
    batch_id: int


@dataclass(frozen=True, slots=True)
class DriverRun:
    """The end of one driver."""

    exit_code: int  # negative for a signal
    batches: tuple[BatchLine, ...]
    last_words: str  # end of its output

    @property
    def was_killed(self) -> bool:
        """True if it died by SIGKILL."""
        return self.exit_code == -signal.SIGKILL


def run_driver(
    place: Place, files_per_batch: int, failpoint: str | None, on_batch: Callable[[BatchLine], None]
) -> DriverRun:
    """Run a driver until it and its Java and Python children have ended; `failpoint` as in ``LAKESINK_FAILPOINTS``."""
    batches: list[BatchLine] = []
    tail: list[str] = []
    with _started(place, files_per_batch, failpoint) as process, place.log.open("a", buffering=1) as log:
        assert process.stdout is not None
        for line in process.stdout:  # ends when the last process that holds the other end of the pipe ends
            log.write(line)
            tail = [*tail[-30:], line]
            found = _BATCH.search(line)
            if found:
                batches.append(BatchLine(found["event"], int(found["batch"])))
                on_batch(batches[-1])
    return DriverRun(process.returncode, tuple(batches), "".join(tail))


@contextmanager
def _started(place: Place, files_per_batch: int, failpoint: str | None) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", DRIVER, str(place.home), str(files_per_batch)]
    environment = driver_environment(place.lakehouse)
    environment.pop(FAILPOINTS, None)
    if failpoint is not None:
        environment[FAILPOINTS] = failpoint
    with child(command, environment, subprocess.PIPE) as process:
        watchdog = threading.Timer(LONGEST_SECONDS, end, (process,))
        watchdog.daemon = True
        try:
            watchdog.start()
            yield process
        finally:
            watchdog.cancel()
