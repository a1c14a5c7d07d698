"""A pseudo terminal: what a program writes to it, and what a person then sees."""

import os
import pty
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PARTS = re.compile(r"\x1b\[2K|\r|\n|[^\x1b\r\n]+|\x1b\[[0-9;]*m")


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Everything that a program writes while standard output and standard error are one terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, cwd=folder, env=dict(environment), stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    )
    os.close(theirs)
    written = b"".join(_chunks(ours))
    os.close(ours)
    assert process.wait() == 0, written.decode()[-3000:]
    return written.decode()


def _chunks(terminal: int) -> Sequence[bytes]:
    chunks: list[bytes] = []
    try:
        while chunk := os.read(terminal, 65_536):
            chunks.append(chunk)
    except OSError:  # Linux: the last program has closed its end
        pass
    return chunks


def seen(written: str) -> list[str]:
    """The lines as a terminal shows them: a carriage return goes back, and what follows overwrites."""
    lines, column = [""], 0
    for part in _PARTS.findall(written):
        match part:
            case "\n":
                lines.append("")
                column = 0
            case "\r":
                column = 0
            case "\x1b[2K":
                lines[-1] = " " * column
            case _ if not part.startswith("\x1b"):
                lines[-1] = lines[-1][:column].ljust(column) + part + lines[-1][column + len(part) :]
                column += len(part)
    return [line.rstrip() for line in lines]


def without_colours(text: str) -> str:
    return _COLOUR.sub("", text)
