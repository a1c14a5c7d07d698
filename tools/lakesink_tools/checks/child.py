"""A child process in its own process group."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO


@contextmanager
def child(
    command: Sequence[str], environment: Mapping[str, str], output: int | IO[str]
) -> Iterator[subprocess.Popen[str]]:
    """Run a program in this complete environment; `output` is as `subprocess` takes it.

    An exception in the block kills it, and the end of the block waits for it.
    """
    with subprocess.Popen(  # noqa: S603 - the caller's own program
        command,
        stdin=subprocess.PIPE,  # it closes also if this process is killed
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
    """Send SIGKILL to a process and its JVM, which is in the same group; PySpark's workers end with the JVM."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
