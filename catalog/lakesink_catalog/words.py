"""Numbers, sizes and times in the words that every command and every shown line uses. Pure."""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from lakesink_protocol.row_changes import ChangeCounts


def printable(text: str) -> str:
    """Text that is safe on a terminal, on one line and whole."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def cut(text: str, longest: int) -> str:
    """A text on one line, cut between two words if it is longer; within a word only if there is no other place."""
    line = " ".join(text.split())
    if len(line) <= longest:
        return line
    head = line[: longest - len(" ...") + 1]
    return f"{head.rpartition(' ')[0] or head[:-1]} ..."


def number(value: int | None) -> str:
    """``1,234``, or a dash."""
    return "-" if value is None else f"{value:,}"


def counted(amount: int | None, noun: str) -> str:
    """``1 file``, ``1,234 files``, ``2 batches``, ``- rows``."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number(amount)} {noun if amount == 1 else plural}"


def size(value: int | None) -> str:
    """``1.5 MiB``, or a dash."""
    if value is None:
        return "-"
    amount, units = float(value), iter(("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
    unit = next(units)
    while amount >= 1024 and unit != "PiB":
        amount, unit = amount / 1024, next(units)
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"


def moment(value: datetime | None) -> str:
    """``2026-11-21 05:00:12`` in UTC, or that the snapshot is gone."""
    return "expired" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def span(value: timedelta) -> str:
    """The largest fitting unit: ``3 min``."""
    seconds = max(int(value.total_seconds()), 0)
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def age(when: datetime | None, now: datetime) -> str:
    """How old it is; ``-`` if nobody knows when it was."""
    return "-" if when is None else span(now - when)


def ago(value: timedelta) -> str:
    """``3 days ago``: the largest fitting unit, in words."""
    count, _, unit = span(value).partition(" ")
    word = {"d": "day", "h": "hour", "min": "minute", "s": "second"}[unit]
    return f"{count} {word}{'' if count == '1' else 's'} ago"


def changed(counts: ChangeCounts) -> str:
    """``12 inserted, 30 updated, 4 deleted``: what became of the changes of rows; ``no change`` if there were none."""
    amounts = {
        "inserted": counts.inserted,
        "updated": counts.updated,
        "deleted": counts.deleted,
        "late": counts.late_upserts + counts.late_deletes,
        "absent": counts.absent,
        "superseded": counts.superseded,
        "healed": counts.healed,
    }
    return ", ".join(f"{number(amount)} {word}" for word, amount in amounts.items() if amount) or "no change"


def rows_in_words(stored: int | None, position_deletes: int | None) -> str:
    """``12 rows``, or ``12 stored rows with 4 deletes``: a delete may be of a row that compaction left out."""
    if not position_deletes:
        return counted(stored, "row")
    return f"{counted(stored, 'stored row')} with {counted(position_deletes, 'delete')}"


def rewritten(counts: Mapping[str, int]) -> str:
    """``12 files into 1, 3.0 MiB into 2.4 MiB, 1,500 rows, without 4 deleted rows``: what a maintenance did."""
    deleted = f", without {counted(counts['dropped'], 'deleted row')}" if counts["dropped"] else ""
    carried = f", {counted(counts['carried'], 'row')} deleted meanwhile" if counts["carried"] else ""
    return (
        f"{counted(counts['files'], 'file')} into {number(counts['into'])}, {size(counts['bytes_before'])} into"
        f" {size(counts['bytes_after'])}, {counted(counts['rows'], 'row')}{deleted}{carried}"
    )


def as_arguments(table: str, catalog: str | None) -> str:
    """A table as the arguments of a command, with the catalog that the user named."""
    return shlex.join([table] if catalog is None else [table, "--catalog", catalog])
