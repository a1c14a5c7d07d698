"""What must hold of whatever comes back from a hostile input. Shares no code with what it judges."""

import posixpath
import random
import re
from collections.abc import Callable, Iterable
from typing import Protocol
from urllib.parse import unquote, urlsplit

from lakesink_protocol.errors import LakesinkError
from proof.security.mutation import Forged

ACCEPTED = "accepted"
WRITTEN_AGAIN = "written again"
"""What becomes of a prepared record that is not believed: neither an error nor an accepted input."""
LONGEST_FIRST_LINE = 200
LONGEST_MESSAGE = 20_000
MOST_CHOICES = 6
LARGEST_BATCH = 2**62
_NAME = re.compile(r"-\d{5,10}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet", re.ASCII)


class Unsafe(AssertionError):
    """A hostile input got further than it may."""


class Target(Protocol):
    """One way into the product for data that others wrote."""

    @property
    def name(self) -> str:
        """The way in words."""

    def forge(self, chance: random.Random) -> Forged:
        """A hostile input."""

    def feed(self, data: bytes) -> str:
        """What became of it: `ACCEPTED`, or the name of what refused it.

        Raises:
            Unsafe: It was believed and must not be. Any other exception is a defect too.
        """


def refused_by(call: Callable[[], object]) -> str | None:
    """The code of the named error that a call ends with; None if it returns."""
    try:
        call()
    except LakesinkError as error:
        check_message(error)
        return error.code.removeprefix("LAKESINK_")
    return None


def check_message(error: LakesinkError) -> None:
    """A message is bounded, and nothing in it moves a terminal or forges a line of a log."""
    lines, choices = str(error).split("\n"), len(error.choices)
    if choices == 1 or choices > MOST_CHOICES or lines[3 : 3 + choices] != [f"    - {one}" for one in error.choices]:
        raise Unsafe(f"{error.code}: a message whose choices are not one line each")
    if (
        len(lines) != 3 + choices + bool(error.more)
        or len(lines[0]) >= LONGEST_FIRST_LINE
        or len(str(error)) > LONGEST_MESSAGE
    ):
        raise Unsafe(f"{error.code}: a message of {len(lines)} lines, {len(lines[0])} and {len(str(error))} characters")
    if not all(line.isprintable() for line in lines):
        raise Unsafe(f"{error.code}: a message with control characters")


def require(truth: bool, broken: str) -> None:  # noqa: FBT001 - an assertion that no optimiser removes
    """Raise `Unsafe` with the promise that is broken."""
    if not truth:
        raise Unsafe(broken)


def lies_in(path: str, folder: str) -> bool:
    """The path is a plain one strictly below a local folder, whether a reader decodes percents or not.

    A local path means the same place without its scheme, and with one slash or three after it, as Spark spells it.
    """
    path, folder = (text.removeprefix("file://").removeprefix("file:") for text in (path, folder))
    plain = path.isprintable() and path.startswith(f"{folder}/") and not set(path) & set("?#\\")
    return plain and len(path) < len(folder) + 1_100 and all(_below(text, folder) for text in (path, unquote(path)))


def is_of_batch(path: str, stem: str) -> bool:
    """The name is one that a task of exactly this sink and batch gives."""
    name = path.rpartition("/")[2]
    return name.startswith(stem) and _NAME.fullmatch(name[len(stem) :]) is not None


def check_counts(rows: Iterable[int], sizes: Iterable[int]) -> None:
    """Every count is one that can be, and so are the sums, which go into totals that others read as 64 bits."""
    rows, sizes = list(rows), list(sizes)
    require(all(type(count) is int and count > 0 for count in (*rows, *sizes)), "a count that is none")
    require(sum(rows) < LARGEST_BATCH and sum(sizes) < LARGEST_BATCH, "sums beyond what readers can hold")


def _below(text: str, folder: str) -> bool:
    root, path = posixpath.normpath(urlsplit(folder).path), posixpath.normpath(text.removeprefix("file://"))
    return path.startswith(f"{root}/")
