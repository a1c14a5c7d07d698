"""A child process in its own process group, which always ends with its parent."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from lakesink_catalog.connect.catalog import HOME_VARIABLE


@contextmanager
def child(
    command: Sequence[str], environment: Mapping[str, str], output: int | IO[str]
) -> Iterator[subprocess.Popen[str]]:
    """Run a program that calls `end_with_parent`, in this complete environment.

    An exception in the block kills it, and the end of the block waits for it. `output` is as `subprocess` takes it.
    """
    with subprocess.Popen(  # noqa: S603 - the caller's own program
        command,
        stdin=subprocess.PIPE,  # the child ends when this closes, also if this process is killed
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            yield process
        except BaseException:
            end(process)
            raise


def end(process: subprocess.Popen[str]) -> None:
    """Send SIGKILL to a driver and its JVM, which is in the same process group; PySpark's workers end with the JVM."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def end_with_parent() -> None:
    """Called in the child: it now ends when its parent ends."""
    threading.Thread(target=_wait_for_the_end, daemon=True).start()


def _wait_for_the_end() -> None:
    os.read(sys.stdin.fileno(), 1)  # nothing is ever written: this returns when the other end closes
    os._exit(1)


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
