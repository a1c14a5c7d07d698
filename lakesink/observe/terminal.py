"""Shows a running stream to a person: a line for each batch, on standard error or below the cell of a notebook."""

import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TextIO

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from lakesink.settings.options import read_with_variable
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.log import is_configured, is_written, log_beside_terminal, shows
from lakesink_catalog.words import changed, counted, printable, size
from lakesink_protocol import events
from lakesink_protocol.measures import TOLD
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.row_changes import ChangeCounts

_FOUND, _STOPPED, _FAILED = "already committed", "stopped", ("failed", "refused")
WELL, NOTABLE, BAD, FRAME = "green", "yellow", "red", "bold"
_CLEARED = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
"""Spark's progress bar ends with a carriage return, so the cursor stands at the start of a line with text."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line. The colour repeats what `word` says: nobody needs it to understand the line."""

    before: str
    word: str = ""
    colour: str = ""
    after: str = ""
    rest: tuple[str, ...] = ()


@dataclass(slots=True)
class Totals:
    """What a run has done so far, by the word of each batch's line."""

    sums: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter), init=False)
    seconds: float = field(default=0.0, init=False)

    def add(self, event: events.BatchEnded) -> None:
        """Count a batch, also one that failed or was stopped."""
        self.seconds += event.seconds
        outcome = event.outcome if isinstance(event, events.BatchFinished) else None
        word = _word(outcome)[0] if outcome is not None else _end_without_outcome(event)
        self.sums[word].update(batches=1)
        if isinstance(outcome, Committed):
            self.sums[word].update(rows=outcome.rows, files=outcome.files, bytes=outcome.bytes)

    def line(self, name: str) -> Line:
        """The line at the end of a run of the stream of that name."""
        batches = counted(sum(one["batches"] for one in self.sums.values()), "batch")
        parts = "; ".join(_part(word, one) for word, one in self.sums.items())
        return Line(
            "", f"{name}  query ended", FRAME, f"  {batches} in {self.seconds:.1f} s{': ' if parts else ''}{parts}"
        )


def _part(word: str, one: Counter[str]) -> str:
    written = f" ({counted(one['rows'], 'row')}, {counted(one['files'], 'file')}, {size(one['bytes'])})"
    return f"{one['batches']:,} {word}{'' if word in (_FOUND, _STOPPED, *_FAILED) else written}"


def started(event: events.QueryStarted, target: str) -> Line:
    """Where the rows go, and the batch with which the run goes on."""
    verb = "goes on with" if event.batch_id else "begins with"
    after = f"; guarantee: {event.guarantee}" if event.is_weakened else ""
    return Line("", f"lakesink: {target}, sink {event.sink}, {verb} batch {event.batch_id}", FRAME, after)


def ended(event: events.BatchEnded, name: str, noun: str) -> Line | None:
    """The outcome of a batch; `noun` is ``batch``, or ``version`` of an append."""
    line = partial(Line, f"{name}  {noun} {event.batch_id:<4}  ")
    took = f"{round(event.seconds * 1000):,} ms"
    match event:
        case events.BatchFinished(outcome=AlreadyCommitted()):
            return line(_FOUND, NOTABLE, f"  nothing to write  {took}")
        case events.BatchFinished(outcome=Committed() as outcome):
            return line(*_written(outcome, took))
        case events.BatchInterrupted():
            return line(_STOPPED, NOTABLE, f"  by query.stop(), nothing is lost  {took}")
        case events.BatchFailed(code=code, error=error, rest=rest):
            said = error[max(error.find(f"[{code}]"), 0) :]
            return line(_end_without_outcome(event), BAD, f"  {said}  {took}", rest)
    return None


def _written(outcome: Committed, took: str) -> tuple[str, str, str]:
    word, colour = _word(outcome)
    quality, unmet = outcome.quality, outcome.quality.unmet_in_words(outcome.quality.unmet)
    rows, files = counted(outcome.rows, "row"), counted(outcome.files, "file")
    counts = f"{rows:>12}  {files:>8}  {size(outcome.bytes):>8}  {took}"
    notes = (
        (outcome.recovered, "the rows that an earlier run prepared"),
        (outcome.accepted, f"accept {outcome.accepted}"),
        (outcome.attempts > 1, counted(outcome.attempts, "attempt")),
        (outcome.changes is not None, changed(outcome.changes or ChangeCounts())),
        (outcome.schema_change, f"schema: {outcome.schema_change}"),
        *((quality.counts[one], counted(quality.counts[one], one.word)) for one in TOLD),
        (unmet, f"unmet: {unmet}"),
    )
    said = ", ".join(text for applies, text in notes if applies)
    return f"{word:<9}", colour, f"  {counts}" + (f"  ({said})" if said else "")


def _end_without_outcome(event: events.BatchEnded) -> str:
    return _FAILED[event.is_refused] if isinstance(event, events.BatchFailed) else _STOPPED


def _word(outcome: Outcome) -> tuple[str, str]:
    """The word of `lakesink.history`, so that a batch has one everywhere."""
    if isinstance(outcome, AlreadyCommitted):
        return _FOUND, NOTABLE
    if outcome.recovered:
        return "recovered", NOTABLE
    return ("committed", WELL) if outcome.accepted is None else ("accepted", NOTABLE)


def watched(name: str, target: str, *, verbose: bool | str | None, noun: str = "batch") -> events.Listeners:
    """The default listeners, and a terminal if its lines are wanted.

    Lines begin with `name`; the first one says that it writes to `target`. Without a terminal, as in a container, they
    stand in for the log as long as the program configures no logging.
    """
    asked = read_with_variable("verbose", verbose)
    console = _console(wanted=asked)
    if console is None:
        return LISTENERS
    for_log = not (asked or console.is_terminal or console.file is sys.stdout)
    return replace(LISTENERS, log=log_beside_terminal).also(Terminal(console, name, target, noun, for_log))


def is_shown(event: events.Event, listeners: events.Listeners) -> bool:
    """True if a person can read the line of an event that these listeners got: in the log, or at a terminal."""
    terminals = [one for one in listeners.others if isinstance(one, Terminal)]
    return is_written(event) or not all(one.is_silent for one in terminals)


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

    @property
    def is_silent(self) -> bool:
        """True if the lines only stand in for a log, and the program has configured one."""
        return self.for_log and is_configured()

    def __call__(self, event: events.Event) -> None:
        """Print the line of an event, if it has one."""
        line = self._line(event)
        if line is None or self.is_silent:
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
        before, word, after = map(printable, (line.before, line.word, line.after))
        text = Text.assemble(before, (word, line.colour), after)
        for more in line.rest:
            text.append(f"\n{printable(more)}")
        if not self.console.is_terminal:
            self.console.print(text)
        elif self.console.is_dumb_terminal:
            text.pad_right(max(self.console.width - 1 - text.cell_len, 0))
            self.console.print(Control(ControlType.CARRIAGE_RETURN), text)
        else:
            self.console.print(_CLEARED, text)
