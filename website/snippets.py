"""Runs what a page tells its reader to run, and compares what the page shows with what it printed.

A page is read from top to bottom, in an empty folder of its own:

- A ``console`` block has commands, which begin with ``$``, and what each prints. A line ``...`` stands for any lines.
- ``<!-- file: NAME -->`` before a block: the reader saves it under that name.
- ``<!-- exit: CODE -->`` before a ``console`` block: how its last command ends, if not with 0.
- ``<!-- not run: WHY -->`` before a block: nobody runs it here.
- ``<!-- continues: PAGE -->`` anywhere: the folder is the one that this other page left.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from website.staging import DOCS, ROOT

CODE = ("", "console", "python", "bash", "sh", "sql")
"""Languages of blocks that a reader may run; without any, a block may be a command too."""
SHOWN_FOLDER, SHOWN_ROOT = "/home/ada/shop", "/home/ada/lakesink"
_BLOCK = re.compile(
    r"(?P<marks>(?:^ *<!-- [^\n]* -->\n)*)^ *```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL
)
_MARK = re.compile(r"<!-- (file|exit|not run|continues): (.+?) -->")
_COMMAND = re.compile(r"^\$ (.*(?:\n> .*)*)\n?((?:(?!\$ ).*\n)*)", re.MULTILINE)
_NOISE = re.compile(
    r"^(WARNING: Using incubator|Using Spark's default log4j|Setting default log level|To adjust logging level"
    r"|\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARN ).*\n",
    re.MULTILINE,
)
"""What every Spark prints on its own, and a machine's name with it."""
_VARYING = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{32}\b", "<id>"),
    (r"\b\d{15,20}\b", "<snapshot>"),
    (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?", "<time>"),
    (r"seconds=[\d.]+", "seconds=<n>"),
    (r"bytes=\d+", "bytes=<n>"),
    (r"\b\d+(\.\d+)? [KM]?i?B\b", "<size>"),
    (r"\b\d+(\.\d+)? (s|seconds?|min|minutes?|ms)\b", "<span>"),
    (r"\b\d+\.\d+\.\d+[\w.+-]*", "<version>"),
    (r"\b\d{8}T\d{6}\b", "<time>"),
    (r"\b\d{5}-<id>", "<file>"),
    (r"[ \t]+", " "),
)
"""What differs from run to run, as it is compared."""


class PageFailed(Exception):
    """A command of a page ended or printed otherwise than the page shows."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block and the marks before it."""

    language: str
    text: str
    start: int  # of the text in the page
    marks: dict[str, str]


@dataclass(frozen=True, slots=True)
class Command:
    """A command, and the output that the page shows below it."""

    text: str
    shown: str


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page."""
    found = _BLOCK.finditer(page)
    return [Block(one["language"], one["text"], one.start("text"), dict(_MARK.findall(one["marks"]))) for one in found]


def commands(block: Block) -> list[Command]:
    """The commands of a console block."""
    return [Command(text.replace("\n> ", "\n"), shown) for text, shown in _COMMAND.findall(block.text)]


def unmarked(page: str) -> list[str]:
    """First lines of blocks that a reader may run, that nothing runs, and that do not say why."""
    return [
        block.text.partition("\n")[0]
        for block in blocks(page)
        if block.language in CODE and block.language != "console" and not block.marks.keys() & {"file", "not run"}
    ]


def predecessor(page: str) -> str | None:
    """The page whose folder this one continues with."""
    return dict(_MARK.findall(page)).get("continues")


def run_page(path: Path, folder: Path, *, write: bool = False) -> None:
    """Run every block of a page in the folder. With `write`, the page is changed to show what was printed."""
    page, shift = path.read_text(), 0
    for block in blocks(page):
        if "not run" in block.marks:
            continue
        if name := block.marks.get("file"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(block.text)
        elif block.language == "console":
            now = "".join(_ran(block, folder, path.name, write=write))
            start = block.start + shift
            page = page[:start] + now + page[start + len(block.text) :]
            shift += len(now) - len(block.text)
    if write:
        path.write_text(page)


def _ran(block: Block, folder: Path, page: str, *, write: bool) -> Iterator[str]:
    found = commands(block)
    codes = [0] * (len(found) - 1) + [int(block.marks.get("exit", "0"))]
    for command, code in zip(found, codes, strict=True):
        printed = run(command.text, code, folder, page)
        same = alike(command.shown, printed)
        if not same and not write:
            raise PageFailed(f"{page}: $ {command.text}\nThe page shows:\n{command.shown}\nIt printed:\n{printed}")
        shown = replace(command, shown=command.shown if same else printed)
        yield "$ " + shown.text.replace("\n", "\n> ") + "\n" + shown.shown


def run(command: str, code: int, folder: Path, page: str) -> str:
    """What a command prints, as a page may show it."""
    done = subprocess.run(
        ["bash", "-c", f"{command}\nexit $?"],  # else bash becomes the command, and a killed one has no exit code
        cwd=folder,
        env=_environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != code:
        raise PageFailed(f"{page}: $ {command}\nended with {done.returncode}, not {code}:\n{done.stdout[-3000:]}")
    shown = _NOISE.sub("", done.stdout)
    for real, instead in ((folder, SHOWN_FOLDER), (ROOT, SHOWN_ROOT), (sys.prefix, f"{SHOWN_ROOT}/.venv")):
        shown = shown.replace(str(real), instead)
    return re.sub(r"[ \t]+$", "", shown, flags=re.MULTILINE)


def alike(shown: str, printed: str) -> bool:
    """Whether a page shows this output, apart from what differs in every run."""
    parts = [re.escape(steady(line)) if line.strip() != "..." else None for line in shown.splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if part is None else f"{part}\\n" for part in parts)
    lines = "".join(f"{steady(line)}\n" for line in printed.splitlines())
    return re.fullmatch(pattern, lines) is not None


def steady(line: str) -> str:
    """A line without what differs in every run."""
    for varying, instead in _VARYING:
        line = re.sub(varying, instead, line)
    return line.strip()


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LAKESINK_", "PYICEBERG_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    quiet = {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONUNBUFFERED": "1", "COLUMNS": "100", "LAKESINK_VERBOSE": "0"}
    return kept | {"PATH": path, "PYICEBERG_HOME": str(folder)} | quiet


class Folders:
    """The folder with which a page begins. There is one for all pages, because tables have absolute paths."""

    def __init__(self, root: Path) -> None:
        self._root, self._folder = root, root / "shop"
        self._left: dict[str, Path] = {}

    def begin(self, page: str) -> Path:
        """The folder, as the page that this one continues left it, or empty."""
        before = predecessor((DOCS / page).read_text())
        if before is not None and before not in self._left:
            run_page(DOCS / before, self.begin(before))
            self.keep(before)
        shutil.rmtree(self._folder, ignore_errors=True)
        if before is None:
            self._folder.mkdir()
        else:
            shutil.copytree(self._left[before], self._folder)
        return self._folder

    def keep(self, page: str) -> None:
        """Keep the folder as this page has left it."""
        self._left[page] = self._root / page.replace("/", "-")
        shutil.copytree(self._folder, self._left[page], dirs_exist_ok=True)
