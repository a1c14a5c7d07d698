"""Runs the demo's driver as a child process, follows its log, and leaves no process behind."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lakesink.demo.child import child, driver_environment, end
from lakesink.demo.place import Place
from lakesink_catalog.failpoints import VARIABLE as FAILPOINTS

LONGEST_SECONDS = 900
DRIVER = "lakesink.demo.driver"
"""The module that drivers run; they have it in their command line."""
_BATCH = re.compile(r" lakesink\.batch\.(?P<event>[a-z-]+) .*\bbatch=(?P<batch>\d+)(?: |$)")


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One batch, as the driver logged it.

    Attributes:
        event: ``committed``, ``recovered``, ``already-committed``, ``failed``, ...
        batch_id: Spark's batch id.
    """

    event: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class DriverRun:
    """How one driver ended.

    Attributes:
        exit_code: As the system reports it; negative for a signal.
        batches: What it logged.
        last_words: End of its output.
    """

    exit_code: int
    batches: tuple[BatchLine, ...]
    last_words: str

    @property
    def was_killed(self) -> bool:
        """True if it died by SIGKILL."""
        return self.exit_code == -signal.SIGKILL


def run_driver(
    place: Place, files_per_batch: int, failpoint: str | None, on_batch: Callable[[BatchLine], None]
) -> DriverRun:
    """Run a driver until it ends, and until its Java and Python children have ended too.

    Args:
        place: The demo's folder.
        files_per_batch: Files that a micro-batch reads.
        failpoint: Where it is to die, as in ``LAKESINK_FAILPOINTS``; None to let it live.
        on_batch: Called for each batch that the driver logs.
    """
    batches: list[BatchLine] = []
    tail: list[str] = []
    with _started(place, files_per_batch, failpoint) as process, place.log.open("a", buffering=1) as log:
        assert process.stdout is not None
        for line in process.stdout:  # ends when the last process that holds the other end has ended
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
    with child(command, _environment(place, failpoint), subprocess.PIPE) as process:
        watchdog = threading.Timer(LONGEST_SECONDS, end, (process,))
        watchdog.daemon = True
        try:
            watchdog.start()
            yield process
        finally:
            watchdog.cancel()


def _environment(place: Place, failpoint: str | None) -> dict[str, str]:
    environment = driver_environment(place.lakehouse)
    environment.pop(FAILPOINTS, None)
    return environment if failpoint is None else environment | {FAILPOINTS: failpoint}
