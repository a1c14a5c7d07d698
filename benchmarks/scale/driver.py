"""The driver's part of a batch by the batch's files: it counts the receipts and writes the manifest."""

from collections.abc import Callable, Mapping
from itertools import starmap
from pathlib import Path

from benchmarks.many_files import DriverPart, driver_part
from benchmarks.result import Goal, Result
from benchmarks.scale.panel import Panel

KEY = "driver"
FILES, SHORT_FILES = (1_000, 10_000, 100_000), (1_000, 5_000)
JUDGED = 10_000
COLUMNS = (4, 13)
TASKS, ROUNDS = 2, 3
MOST_SECONDS = 0.4
SECONDS, RECEIPTS = "driver, s of processor", "receipts, MB"


def line_of(columns: int) -> str:
    """The label of a line."""
    return f"{columns} columns"


def measure(_: Path, say: Callable[[str], None], *, short: bool = False) -> Result:
    """Count and write, for all sizes."""
    found = {}
    for columns in COLUMNS:
        for files in SHORT_FILES if short else FILES:
            say(f"{KEY}: {files:,} files, {columns} columns")
            found[columns, files] = driver_part(files, TASKS, columns, ROUNDS)
    return report(found)


def report(found: Mapping[tuple[int, int], DriverPart]) -> Result:
    """A row for each number of columns and files."""
    goals = [
        Goal(
            f"driver's part of {files:,} files, {columns} columns",
            MOST_SECONDS,
            part.together,
            at_least=False,
            unit=" s",
        )
        for (columns, files), part in found.items()
        if files == JUDGED
    ]
    rows = tuple(starmap(_row, found.items()))
    heads = ("columns", "files a batch", "votes s", "manifest s", "together s", "us a file", "receipt bytes a file")
    panels = [
        Panel("files a batch", SECONDS, _lines(found, lambda part: part.together)),
        Panel("files a batch", RECEIPTS, _lines(found, lambda part: part.receipt_bytes / 1e6)),
    ]
    return Result(KEY, "the driver's part of a batch", heads, rows, tuple(goals), panels)


def _goal(name: str, seconds: float) -> Goal:
    return Goal(name, MOST_SECONDS, seconds, at_least=False, unit=" s")


def _row(size: tuple[int, int], part: DriverPart) -> tuple[str | float | int, ...]:
    columns, files = size
    seconds = [round(one, 3) for one in (part.votes, part.manifest, part.together)]
    return columns, f"{files:,}", *seconds, round(part.together / files * 1e6), round(part.receipt_bytes / files)


def _lines(
    found: Mapping[tuple[int, int], DriverPart], value: Callable[[DriverPart], float]
) -> dict[str, list[tuple[float, float]]]:
    return {
        line_of(columns): [(files, value(part)) for (each, files), part in found.items() if each == columns]
        for columns in dict.fromkeys(columns for columns, _ in found)
    }
