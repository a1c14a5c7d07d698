"""What every command shares: its options, one report as text or JSON, and errors without a trace or a secret.

Names and offsets in tables are other people's input: nothing of it reaches the terminal as markup or control code.
"""

import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakesink_protocol.errors import LakesinkError, SettingsError
from lakesink_protocol.redact import describe, redact

OK, NOT_WELL, NOT_CHECKED, ACCEPTED = 0, 1, 2, 3
WIDEST_CELL = 60
_WIDTH = 10_000
_YAML_PARSERS = ("strictyaml", "ruamel")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Report:
    """What a command found."""

    document: dict[str, Any]  # for JSON
    title: str  # first line of the text
    columns: Sequence[str] = ()  # headings; a trailing ``>`` aligns right
    rows: Sequence[Sequence[str]] = ()  # cells as text
    hints: Sequence[str] = ()  # last lines of the text, each on one line: what to do next
    exit_code: int = OK


def reporting(command: Callable[..., Report]) -> Callable[..., None]:
    """As `reported`, for a command that looks into a catalog: with ``--catalog``."""
    option = click.option(
        "--catalog", metavar="NAME", help="Catalog of PyIceberg's configuration; default as in a stream."
    )
    return option(reported(command))


def reported(command: Callable[..., Report]) -> Callable[..., None]:
    """Give a command ``--output``, print its report or error, and exit with its code."""

    @click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
    @functools.wraps(command)
    def run(*, output: str, **arguments: Any) -> None:
        try:
            report = command(**arguments)
        except LakesinkError as error:
            _print_error(error, output)
            sys.exit(NOT_CHECKED)
        except Exception as error:  # noqa: BLE001 - a trace could show what a library put into its message
            _print_error(_unexpected(error), output)
            sys.exit(NOT_CHECKED)
        _print_report(report, output)
        sys.exit(report.exit_code)

    return run


def printable(text: str) -> str:
    """Text that is safe on a terminal, on one line and whole."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Tells a person at a terminal what takes its time."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield status.update


def confirmed(question: str, *, yes: bool) -> None:
    """Ask before something is changed, unless the user has said yes. A `SettingsError` if the user said no."""
    if yes or (sys.stdin.isatty() and click.confirm(question, err=True)):
        return
    raise SettingsError(
        "NOT_CONFIRMED",
        "This changes what is stored, and nobody said yes.",
        action=f"Give --yes if so: {question}",
    )


def invalid(what: str, action: str) -> SettingsError:
    """Options of a command that only reads contradict each other: click's own usage errors have no JSON."""
    return SettingsError("OPTION_INVALID", what, action=action)


def plain(text: str) -> str:
    """Text that is safe on a terminal and fits a cell."""
    shown = printable(text)
    return shown if len(shown) <= WIDEST_CELL else f"{shown[: WIDEST_CELL - 1]}…"


def number(value: int | None) -> str:
    """``1,234``, or a dash."""
    return "-" if value is None else f"{value:,}"


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


def ago(value: timedelta) -> str:
    """``3 days ago``: the largest fitting unit, in words."""
    count, _, unit = span(value).partition(" ")
    word = {"d": "day", "h": "hour", "min": "minute", "s": "second"}[unit]
    return f"{count} {word}{'' if count == '1' else 's'} ago"


def _print_report(report: Report, output: str) -> None:
    if output == "json":
        _print_json(report.document)
        return
    console = _console()
    console.print(Text(printable(report.title), style="bold"))
    if report.rows:
        console.print(_table(report))
    for hint in report.hints:
        console.print(Text(printable(hint)))


def _table(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in report.columns:
        right = heading.endswith(">")
        name = Text(plain(heading.removesuffix(">")))
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for row in report.rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    return table


def _print_error(error: LakesinkError, output: str) -> None:
    facts = redact({"code": error.code, "what": error.what, "data": error.data, "action": error.action})
    if output == "json":
        _print_json({"error": facts})
        return
    console = _console(stderr=True)
    console.print(Text(f"[{facts['code']}] {facts['what']}", style="bold red"))
    console.print(Text(f"  Data: {facts['data']}\n  Do: {facts['action']}"))
    if error.more:
        console.print(Text(f"  More: {error.more}"))


def _unexpected(error: Exception) -> LakesinkError:
    """PyIceberg reads its configuration when it is imported, so a broken file shows as a parser's own error."""
    code, what = "UNEXPECTED", describe(error)
    if type(error).__module__.startswith(_YAML_PARSERS):
        code, what = "CATALOG_MISCONFIGURED", f"PyIceberg's configuration file cannot be read ({what})."
    return LakesinkError(
        code,
        what,
        data="Nothing was written: this command only reads.",
        action="Check that PyIceberg's configuration (~/.pyiceberg.yaml) and the table's files can be read;"
        " if they can, report this.",
    )


def _print_json(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, default=_jsonable, indent=2))


def _jsonable(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    assert isinstance(value, datetime), f"no JSON form for {type(value).__name__}"
    return value.isoformat().replace("+00:00", "Z")


def _console(*, stderr: bool = False) -> Console:
    # Wider than any table: a terminal wraps lines without losing a digit, and a pipe needs no wrapping.
    return Console(stderr=stderr, highlight=False, width=_WIDTH)
