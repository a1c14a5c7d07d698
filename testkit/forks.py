"""Children of the suite for sinks, forked from one process that has imported what they need, and done nothing else.

A child of its own takes two seconds of a processor, nearly all of them for imports. Run as ``python -m testkit.forks``.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lakesink_catalog.failpoints import VARIABLE
from lakesink_tools.testing.checks.processes import PATIENCE_SECONDS, Request


@dataclass
class Forks:
    """Starts children one after another. Each has a number, and two files in the folder."""

    folder: Path
    server: "subprocess.Popen[bytes]"
    started: int = 0

    def start(self, request: Request, failpoints: str = "") -> "Fork":
        """As `lakesink_tools.testing.checks.processes.start`."""
        self.started += 1
        fork = Fork(self, self.folder / str(self.started))
        assert self.server.stdin is not None
        pickle.dump((str(fork.files), failpoints, pickle.dumps(request)), self.server.stdin)
        self.server.stdin.flush()
        return fork


@dataclass
class Fork:
    """What the suite asks of a `subprocess.Popen`."""

    forks: Forks
    files: Path
    returncode: int = 0

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        """Wait until it has ended; it ends itself after its time."""
        assert timeout == PATIENCE_SECONDS
        assert self.forks.server.stdout is not None
        self.returncode = int(self.forks.server.stdout.readline())
        return self.files.with_suffix(".out").read_bytes(), self.files.with_suffix(".err").read_bytes()


@contextmanager
def one_process(folder: Path) -> Iterator[Forks]:
    """The process that forks them; their output lies in the folder."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        yield Forks(folder, server)  # the end of its input ends it


def main() -> None:
    while True:
        try:
            files, failpoints, request = pickle.load(sys.stdin.buffer)  # noqa: S301 - the tests' own
        except EOFError:
            return
        pickle.loads(request)  # noqa: S301 - imports what it names, once
        if (child := os.fork()) == 0:
            _be_a_child(Path(files), failpoints, request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _be_a_child(files: Path, failpoints: str, request: bytes) -> None:
    signal.alarm(PATIENCE_SECONDS)
    os.environ[VARIABLE] = failpoints
    code = 1
    try:
        with files.with_suffix(".out").open("wb") as out, files.with_suffix(".err").open("wb") as err:
            os.dup2(err.fileno(), 1)  # what it prints is no exit code
            os.dup2(err.fileno(), 2)
            pickle.dump(pickle.loads(request)(), out)  # noqa: S301
        code = 0
    except BaseException:  # noqa: BLE001 - told like Python tells it
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
