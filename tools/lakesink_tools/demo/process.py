"""Runs the demo's driver as a child process, follows its log, and leaves no process behind."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from lakesink_catalog.connect.catalog import HOME_VARIABLE
from lakesink_catalog.failpoints import VARIABLE as FAILPOINTS
from lakesink_tools.checks.child import child, end
from lakesink_tools.demo.place import Place

LONGEST_SECONDS = 900
DRIVER = "lakesink_tools.demo.driver"
"""The module of the drivers, which is in their command line."""
_BATCH = re.compile(r" lakesink\.batch\.(?P<event>[a-z-]+) .*\bbatch=(?P<batch>\d+)(?: |$)")


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One batch, as the driver logged it."""

    event: str  # ``committed``, ``recovered``, ``already-committed``, ``failed``, ...
    batch_id: int


@dataclass(frozen=True, slots=True)
class DriverRun:
    """Result of one driver process."""

    exit_code: int  # negative for a signal
    batches: tuple[BatchLine, ...]
    output_end: str  # last lines of its output

    @property
    def was_killed(self) -> bool:
        """True if it died by SIGKILL."""
        return self.exit_code == -signal.SIGKILL


def run_driver(
    place: Place, files_per_batch: int, failpoint: str | None, on_batch: Callable[[BatchLine], None]
) -> DriverRun:
    """Run a driver until it and its Java and Python children have ended; `failpoint` as in ``LAKESINK_FAILPOINTS``."""
    command = [sys.executable, "-m", DRIVER, str(place.home), str(files_per_batch)]
    environment = driver_environment(place.lakehouse) | {FAILPOINTS: failpoint or ""}
    batches: list[BatchLine] = []
    tail: list[str] = []
    with child(command, environment, subprocess.PIPE) as process, place.log.open("a", buffering=1) as log:
        assert process.stdout is not None
        watchdog = threading.Timer(LONGEST_SECONDS, end, (process,))
        watchdog.daemon = True
        watchdog.start()
        try:
            for line in process.stdout:  # ends when the last process that holds the other end of the pipe ends
                log.write(line)
                tail = [*tail[-30:], line]
                if found := _BATCH.search(line):
                    batches.append(BatchLine(found["event"], int(found["batch"])))
                    on_batch(batches[-1])
        finally:
            watchdog.cancel()
    return DriverRun(process.returncode, tuple(batches), "".join(tail))


def end_with_parent() -> None:
    """Called in a `lakesink_tools.checks.child`: it now ends when its parent ends."""

    def wait_for_the_end() -> None:
        os.read(sys.stdin.fileno(), 1)  # nothing is ever written: this returns when the other end closes
        os._exit(1)

    threading.Thread(target=wait_for_the_end, daemon=True).start()


def driver_environment(lakehouse: os.PathLike[str]) -> dict[str, str]:
    """The environment of a Spark driver: this Python for its executors, and the embedded catalog of a folder."""
    own = {
        HOME_VARIABLE: os.fspath(lakehouse),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    environment = os.environ | own
    environment.pop("SPARK_REMOTE", None)
    return environment
