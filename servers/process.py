"""One server process: waited for until it answers, and ended by its own pid."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

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
