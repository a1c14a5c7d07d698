"""The lines that a person reads of a running stream, one for each event that has one. Pure."""

from dataclasses import dataclass
from functools import partial

from lakesink.words import counted, printable, size
from lakesink_protocol import events
from lakesink_protocol.outcome import AlreadyCommitted, Committed

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
class Totals:
    """What a run has done so far."""

    batches: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def add(self, event: events.BatchFinished) -> None:
        """Count a batch."""
        self.batches += 1
        self.seconds += event.seconds
        if isinstance(event.outcome, Committed):
            self.rows += event.outcome.rows
            self.files += event.outcome.files
            self.bytes += event.outcome.bytes

    def line(self, name: str) -> Line:
        """The line at the end of a run of the stream of that name."""
        written = f"{counted(self.rows, 'row')}, {counted(self.files, 'file')}, {size(self.bytes)}"
        after = f"  {counted(self.batches, 'batch')}: {written} written in {self.seconds:.1f} s"
        return Line("", f"{name}  query ended", FRAME, after)


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
            return line("already committed", NOTABLE, f"  nothing to write  {took}")
        case events.BatchFinished(outcome=Committed() as outcome):
            return line(*_written(outcome, took))
        case events.BatchInterrupted():
            return line("stopped", NOTABLE, f"  by query.stop(), nothing is lost  {took}")
        case events.BatchFailed(is_refused=is_refused, code=code, error=error, details=details):
            said = error[max(error.find(f"[{code}]"), 0) :]
            return line("refused" if is_refused else "failed", BAD, f"  {said}  {took}", details)
    return None


def _written(outcome: Committed, took: str) -> tuple[str, str, str]:
    word, colour = _word(outcome)
    rows, files = counted(outcome.rows, "row"), counted(outcome.files, "file")
    counts = f"{rows:>12}  {files:>8}  {size(outcome.bytes):>8}  {took}"
    notes = (
        (outcome.recovered, "the rows that an earlier run prepared"),
        (outcome.accepted, f"accept {outcome.accepted}"),
        (outcome.attempts > 1, f"{outcome.attempts} attempts"),
        (outcome.decoded.malformed_rows, f"{counted(outcome.decoded.malformed_rows, 'malformed row')}"),
    )
    said = ", ".join(text for applies, text in notes if applies)
    return f"{word:<9}", colour, f"  {counts}" + (f"  ({said})" if said else "")


def _word(outcome: Committed) -> tuple[str, str]:
    if outcome.recovered:
        return "recovered", NOTABLE
    if outcome.accepted is not None:
        return "accepted", NOTABLE
    return ("written", WELL) if outcome.rows else ("empty", WELL)
