"""The lines that a person reads of a running stream, one for each event that has one. Pure."""

from dataclasses import dataclass, field
from functools import partial

from lakesink_catalog.words import changed, counted, printable, size
from lakesink_protocol import events
from lakesink_protocol.measures import TOLD
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.row_changes import ChangeCounts

_FOUND, _STOPPED, _FAILED = "already committed", "stopped", ("failed", "refused")
WELL, NOTABLE, BAD, FRAME = "green", "yellow", "red", "bold"


@dataclass(frozen=True, slots=True)
class Line:
    """One line. The colour repeats what `word` says: nobody needs it to understand the line."""

    before: str
    word: str = ""
    colour: str = ""
    after: str = ""
    details: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, str, str]:
        """The three parts as they are shown, without control characters."""
        return printable(self.before), printable(self.word), printable(self.after)


@dataclass(slots=True)
class _Sum:
    batches: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = field(default=0, init=False)

    def add(self, outcome: Outcome | None) -> None:
        self.batches += 1
        if isinstance(outcome, Committed):
            self.rows += outcome.rows
            self.files += outcome.files
            self.bytes += outcome.bytes


@dataclass(slots=True)
class Totals:
    """What a run has done so far, by the word of each batch's line."""

    sums: dict[str, _Sum] = field(default_factory=dict, init=False)
    seconds: float = field(default=0.0, init=False)

    def add(self, event: events.BatchEnded) -> None:
        """Count a batch, also one that failed or was stopped."""
        self.seconds += event.seconds
        outcome = event.outcome if isinstance(event, events.BatchFinished) else None
        word = _word(outcome)[0] if outcome is not None else _end_without_outcome(event)
        self.sums.setdefault(word, _Sum()).add(outcome)

    def line(self, name: str) -> Line:
        """The line at the end of a run of the stream of that name."""
        batches = counted(sum(one.batches for one in self.sums.values()), "batch")
        parts = "; ".join(_part(word, one) for word, one in self.sums.items())
        return Line(
            "", f"{name}  query ended", FRAME, f"  {batches} in {self.seconds:.1f} s{': ' if parts else ''}{parts}"
        )


def _part(word: str, one: _Sum) -> str:
    if word in (_FOUND, _STOPPED, *_FAILED):
        return f"{one.batches:,} {word}"
    return f"{one.batches:,} {word} ({counted(one.rows, 'row')}, {counted(one.files, 'file')}, {size(one.bytes)})"


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
        case events.BatchFailed(code=code, error=error, details=details):
            said = error[max(error.find(f"[{code}]"), 0) :]
            return line(_end_without_outcome(event), BAD, f"  {said}  {took}", details)
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
