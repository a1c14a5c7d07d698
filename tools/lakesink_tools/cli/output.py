"""Shared by every command: a report as text or JSON, and errors without a trace or a secret.

Names and offsets in tables are untrusted text: the terminal shows no markup and no control character of them.
"""

import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakesink.settings.parse import metrics_reader
from lakesink_catalog.words import printable
from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import LakesinkError, SettingsError
from lakesink_protocol.redact import describe, redact

OK, NOT_WELL, NOT_CHECKED, ACCEPTED = 0, 1, 2, 3
WIDEST_CELL = 60
_WIDTH = 10_000
_YAML_PARSERS = ("strictyaml", "ruamel")
_UNTOUCHED = "This command only reads; nothing was changed."
_PERHAPS_CHANGED = "The command may have made a part of its changes."
_OF_A_WRITER = frozenset({*(state.value for state in DataState), _PERHAPS_CHANGED})
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a command."""

    document: dict[str, Any]  # for JSON
    title: str  # first line of the text
    columns: Sequence[str] = ()  # headings; a trailing ``>`` aligns right
    rows: Sequence[Sequence[str]] = ()  # cells as text
    hints: Sequence[str] = ()  # last lines of the text, each on one line: what to do next
    exit_code: int = OK


def reported(command: Callable[..., Report], *, only_reads: bool = False) -> Callable[..., None]:
    """Give a command ``--output``, print its report or error, and exit with its code.

    Errors say which data a batch left behind; in a command that `only_reads` there is no batch, unless it replays.
    """

    @click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
    @functools.wraps(command)
    def run(*, output: str, **arguments: Any) -> None:
        reads = only_reads and not arguments.get("replay")
        try:
            report = command(**arguments)
        except Exception as error:  # noqa: BLE001 - a trace could show what a library put into its message
            _print_error(error, output, only_reads=reads)
            sys.exit(NOT_CHECKED)
        _print_report(report, output)
        sys.exit(report.exit_code)

    return run


@contextmanager
def progress(elsewhere: Callable[[str], None] = lambda _: None) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows progress, if the standard error is a terminal, or else the one that is given."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield elsewhere
        return
    with console.status("") as status:
        yield status.update


def confirmed(question: str, *, yes: bool) -> None:
    """Ask before a change, unless the user gave ``--yes``. Raises a `SettingsError` if the user does not confirm."""
    try:
        agreed = yes or (sys.stdin.isatty() and click.confirm(question, err=True))
    except click.Abort:  # Ctrl-C, or the end of the input
        agreed = False
    if not agreed:
        raise SettingsError.of("NOT_CONFIRMED", question=question)


def invalid(what: str, action: str) -> SettingsError:
    """The error for options that contradict each other; click's own usage errors have no JSON."""
    return SettingsError("OPTION_INVALID", what, action=action)


def metrics_port(text: str) -> str:
    """Host and port at which Prometheus reads what a command counts."""
    place = metrics_reader(text)
    if ":" not in place:
        raise ValueError("expected a port, such as 9464 or '0.0.0.0:9464'")
    return place


def parsed_by(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """What click calls with an argument, to parse it; a ValueError says what was expected."""

    def callback(_: click.Context, __: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def plain(text: str) -> str:
    """Text for a cell of a table, without control characters."""
    shown = printable(text)
    return shown if len(shown) <= WIDEST_CELL else f"{shown[: WIDEST_CELL - 1]}…"


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


def _print_error(error: Exception, output: str, *, only_reads: bool) -> None:
    if not isinstance(error, LakesinkError):
        # PyIceberg reads its configuration at import, so a malformed file raises an exception of the YAML parser.
        of_yaml = type(error).__module__.startswith(_YAML_PARSERS)
        code = "CATALOG_MISCONFIGURED.file" if of_yaml else "UNEXPECTED.in_command"
        error = LakesinkError.of(code, data=_PERHAPS_CHANGED, error=describe(error))
    data = _UNTOUCHED if only_reads and error.data in _OF_A_WRITER else error.data
    facts = redact({"code": error.code, "what": error.what, "data": data, "action": error.action})
    if output == "json":
        _print_json({"error": facts})
        return
    console = _console(stderr=True)
    console.print(Text(f"[{facts['code']}] {facts['what']}", style="bold red"))
    console.print(Text("\n".join([f"  Data: {facts['data']}", *map(redact, error.advice())])))
    if error.more:
        console.print(Text(f"  More: {error.more}"))


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
