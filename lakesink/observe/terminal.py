"""Shows a running stream to a person: a line for each batch, on standard error or below the cell of a notebook."""

import os
import sys
from dataclasses import dataclass, field, replace
from typing import TextIO

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from lakesink.observe.lines import Line, Totals, ended, started
from lakesink.settings.options import read_option
from lakesink.settings.parse import switch
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.log import is_configured, log_beside_terminal, shows
from lakesink_catalog.words import printable
from lakesink_protocol import events
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.redact import redact

VARIABLE = "LAKESINK_VERBOSE"
_CLEARED = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
"""Spark's progress bar ends with a carriage return, so the cursor stands at the start of a line with text."""


def watched(name: str, target: str, *, verbose: bool | str | None, noun: str = "batch") -> events.Listeners:
    """The default listeners, and a terminal if its lines are wanted.

    Lines begin with `name`; the first one says that it writes to `target`. Without a terminal, as in a container, they
    stand in for the log as long as the program configures no logging.
    """
    asked = wanted(verbose=verbose)
    console = _console(wanted=asked)
    if console is None:
        return LISTENERS
    for_log = not (asked or console.is_terminal or console.file is sys.stdout)
    return replace(LISTENERS, log=log_beside_terminal).also(Terminal(console, name, target, noun, for_log))


def wanted(*, verbose: bool | str | None) -> bool | None:
    """What the option says, else the environment; None if neither does.

    Raises:
        SettingsError: The option or the variable is neither true nor false.
    """
    if verbose is not None:
        return bool(read_option("verbose", verbose))
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        return switch(text)
    except ValueError as error:
        trouble = str(error)
    raise SettingsError.of("SETTING_INVALID.variable", text=redact(text)[:40], why=trouble)


def _console(*, wanted: bool | None) -> Console | None:
    """Where to print; None for nowhere. A notebook takes plain text: its cells have no lines to clear."""
    if wanted is False:
        return None
    if Console().is_jupyter:
        return _Printer(file=sys.stdout, force_jupyter=False, force_terminal=False, soft_wrap=True, highlight=False)
    if not (wanted or _is_open(sys.stderr)):
        return None
    at_terminal = _is_open(sys.stderr) and sys.stderr.isatty()
    return _Printer(file=sys.stderr, force_terminal=at_terminal, soft_wrap=True, highlight=False)


def _is_open(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed


class _Printer(Console):
    """A console whose reader may leave: Rich would end the process, and throw away its standard output."""

    def on_broken_pipe(self) -> None:
        """Let the error that is being handled pass."""
        raise  # noqa: PLE0704 - Rich calls this while it handles the error


@dataclass(slots=True)
class Terminal:
    """Prints the lines of one stream, or of one append; what the log already shows in this place, it leaves out.

    With `for_log`, it prints nothing at all once logging is configured.
    """

    console: Console
    name: str
    target: str
    noun: str = "batch"
    for_log: bool = False
    totals: Totals = field(default_factory=Totals, init=False)

    def __call__(self, event: events.Event) -> None:
        """Print the line of an event, if it has one."""
        line = self._line(event)
        if line is None or (self.for_log and is_configured()):
            return
        if not shows(event, self.console.file, sys.stderr):
            self._print(line)

    def _line(self, event: events.Event) -> Line | None:
        match event:
            case events.QueryStarted():
                self.totals = Totals()
                return started(event, self.target)
            case events.BatchEnded():
                self.totals.add(event)
                return ended(event, self.name, self.noun)
            case events.QueryEnded():
                return self.totals.line(self.name)
        return None

    def _print(self, line: Line) -> None:
        """One write for a line and what clears its place: Spark's bar is drawn by another process."""
        before, word, after = line.texts
        text = Text.assemble(before, (word, line.colour), after)
        for detail in line.details:
            text.append(f"\n  - {printable(detail)}")
        if not self.console.is_terminal:
            self.console.print(text)
        elif self.console.is_dumb_terminal:
            text.pad_right(max(self.console.width - 1 - text.cell_len, 0))
            self.console.print(Control(ControlType.CARRIAGE_RETURN), text)
        else:
            self.console.print(_CLEARED, text)
