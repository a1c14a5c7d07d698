"""Where the drivers of a cell leave their traces."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

TRACE_BYTES = 1024 * 1024


class TraceLog:
    """The trace of a cell's drivers: a pipe, which has room when no disk has any.

    Args:
        path: Made here.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, TRACE_BYTES)

    def lines(self) -> list[str]:
        """What was written since it was made, or read last."""
        found = b""
        with suppress(BlockingIOError):
            while part := os.read(self._pipe, TRACE_BYTES):
                found += part
        return found.decode().splitlines()

    def close(self) -> None:
        """No more is read."""
        os.close(self._pipe)
