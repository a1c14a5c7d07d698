"""Runs the driver as a child: starts it, kills it, and reads what lakesink logged about its batches."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from subprocess import Popen
from typing import Self

from lakesink_tools.checks.child import child, end

from .setting import Folder

_EVENT = re.compile(r"lakesink\.(?!driver)[a-z.-]+ .*")
_ERROR = re.compile(r"\[LAKESINK_[A-Z_]+\].*")
_ADVICE = re.compile(r"^\s*Do: .*(?:\n\s+- .*)*", re.MULTILINE)


@dataclass(slots=True)
class Application:
    """The driver, and how far its log was read. Use it as a context: no process outlives it."""

    folder: Folder
    bootstrap: str
    environment: Mapping[str, str]
    drivers: int = 0
    _process: "Popen[str] | None" = None
    _read: int = 0
    _running: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int | None:
        """The driver's process; None while there is none."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    @property
    def variables(self) -> dict[str, str]:
        """The environment of drivers and commands."""
        return {**os.environ, **self.environment, "PYSPARK_PYTHON": sys.executable}

    def start(self) -> None:
        """Start a driver; the one before has ended."""
        self._running.close()
        call = [sys.executable, "-m", f"{__package__}.driver", str(self.folder.home), self.bootstrap]
        log = self._running.enter_context(self.folder.log.open("a"))
        self._process = self._running.enter_context(child(call, self.variables, log))
        self.drivers += 1

    def kill(self) -> None:
        """SIGKILL to the driver, its JVM and its workers; nothing if none runs."""
        if self._process is not None:
            end(self._process)
        self._running.close()
        self._process = None

    def news(self) -> Iterator[str]:
        """What lakesink has logged since the last call, one line for each event."""
        for line in self._unread().splitlines():
            found = _EVENT.search(line)
            if found:
                yield found[0]

    def error(self) -> tuple[str, str] | None:
        """The first line of the newest error of lakesink, and its advice."""
        text = self.folder.log.read_text(errors="replace")
        errors, advice = _ERROR.findall(text), _ADVICE.findall(text)
        return (errors[-1], advice[-1].strip()) if errors and advice else None

    def _unread(self) -> str:
        with self.folder.log.open(errors="replace") as log:
            log.seek(self._read)
            text = log.read()
        whole = text[: text.rfind("\n") + 1]
        self._read += len(whole.encode())
        return whole
