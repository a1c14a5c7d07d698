"""One server process: waited for until it answers, stopped for a while, and ended by its own pid."""

import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar
from urllib.error import URLError

Process = subprocess.Popen[bytes]
_TOLD = 3000


def why_not_up(process: Process, log: Path, answers: Callable[[], bool], patience_seconds: float) -> str | None:
    """Wait until a server answers.

    Args:
        process: The server.
        log: Where it writes what it does.
        answers: Asks it once; False if it does not answer yet.
        patience_seconds: For how long it is asked.

    Returns:
        None once it answers; the end of its log if it has died, or has not answered in time and may still run.
    """
    deadline = time.monotonic() + patience_seconds
    while not answers():
        if process.poll() is not None or time.monotonic() > deadline:
            return log.read_text(errors="replace")[-_TOLD:]
        time.sleep(0.05)
    return None


def end(process: Process, patience_seconds: float, how: signal.Signals = signal.SIGTERM) -> None:
    """End a server and wait until it is gone; one that was stopped, or takes too long, is made to go.

    Args:
        process: The server; it may have ended.
        patience_seconds: How long it may take.
        how: What it is sent.
    """
    process.send_signal(how)
    process.send_signal(signal.SIGCONT)
    try:
        process.wait(patience_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def answers_http(url: str) -> bool:
    """True if a server of this machine answers."""
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - our own loopback
            return True
    except (URLError, ConnectionError, TimeoutError):
        return False


class Server:
    """What every server of one process can do. The class below keeps the process, and is otherwise its own.

    Attributes:
        process: The server; None while it is down.
        grace_seconds: How long it may take to end.
    """

    process: Process | None
    grace_seconds: ClassVar[float]

    def kill(self) -> None:
        """SIGKILL: what it had not yet made durable is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as an operator would; nothing if it is down."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: it accepts connections and answers nothing, until `resume`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            end(self.process, self.grace_seconds, how)
            self.process = None

    def _wait(self, name: str, log: Path, answers: Callable[[], bool], patience_seconds: float) -> None:
        assert self.process is not None
        said = why_not_up(self.process, log, answers, patience_seconds)
        if said is not None:
            self.kill()
            raise RuntimeError(f"{name} did not come up: {said}")
