"""The table as people read it: for the terminal, and for its page. Pure."""

from collections.abc import Iterator

from proof.guarantees.cells import KINDS, PARTED, Blow, CellResult, Source
from proof.guarantees.run import Guarantees

NOT_RUN = "not run"

_HEAD = """# The guarantee table, executed

What a stream guarantees is decided by two things: whether the source can give a batch again, and what the sink does
between the batch's effect and the memory of it. This page is that table, run: every cell is a real stream on real
Spark whose driver is killed (SIGKILL) at each bad moment, started again each time, and whose rows are counted in the
end. `make guarantees ARGS=--write` does it and writes this page; nothing on it is typed by hand. One cell alone:
`make guarantees ARGS="--sink key-value --source replays"`.
"""

_METHOD = """
Each batch is a file of twenty numbered rows; batch n meets kill n, and one batch more meets none. A driver replays
what the one before left behind, goes on to its own moment, and is killed there with all that it has started. The two
streams of a sink, one over each source, share their drivers. *Lost* rows are not in the target in
the end, *doubled* ones are there once too often. A reader polls the target all the while: *in part* counts the batches
that it ever saw incomplete, *went back* the times when it saw an older value of a key after a newer one. The source
that can replay is a folder of files; the other one is a queue that forgets what it has handed out
([forgetful.py](../../examples/guarantees/forgetful.py)). The store of the first four sinks takes one row after the
other and knows no transaction ([store.py](../../examples/guarantees/store.py)).
"""

_READ = """
## What to take from it

- **The source sets the limit.** Where it cannot replay, every sink loses rows. Two-phase commit makes the window
  smaller, and does not close it: a batch that was *prepared* is committed by the restart without asking the source; one
  that was only read is gone.
- **Idempotent writes end well, and look bad on the way.** Nothing is lost or doubled, but the keys of a replayed batch
  run through their history again, and a reader who looks meanwhile sees values that were already overtaken, and batches
  in part. If somebody acts on what they read, the harm is done.
- **A log is not enough.** A write-ahead log has the phases of two-phase commit, but its commit is not one step. That is
  all the difference, and it is a whole column of doubled rows.
- **Two-phase commit needs one atomic step in the target** that carries both rows and the memory of the batch: a rename,
  a transaction, a table's commit.

How the phases follow each other is on [the page on concepts](../start/concepts.md); what lakesink promises beyond, on
[the page on guarantees](../understand/guarantees.md).
"""


def text(guarantees: Guarantees) -> str:
    """For the terminal."""
    lines = [", ".join(f"{name} {number}" for name, number in guarantees.versions.items())]
    for cell in guarantees.cells:
        lines += ["", f"{KINDS[cell.sink].title}, {cell.of[1].value}: {_verdict(cell)} [{_figures(cell)}]"]
        lines += [f"  killed when {KINDS[cell.sink].points[blow.point]}: {_became(blow)}" for blow in cell.blows]
        lines += [f"  a reader saw {cell.example}"] if cell.example else []
    lines += ["", *(f"Not run: {what}" for what in guarantees.not_run)]
    lines += [f"BROKEN {what}" for what in guarantees.broken]
    lines.append(f"{_extent(guarantees)}, {guarantees.seconds:.0f} s.")
    lines.append("Next: docs/evidence/guarantee-table.md says what to take from it; examples/guarantees has the sinks.")
    return "\n".join(lines)


def markdown(guarantees: Guarantees) -> str:
    """The page ``docs/evidence/guarantee-table.md``."""
    lines = [_HEAD, *_table(guarantees), _METHOD, "## The sinks", "", "| sink | how | code |", "|---|---|---|"]
    lines += [
        f"| {kind.title} | {kind.how} | [{kind.code.rpartition('/')[2]}](../../{kind.code}) |"
        for kind in KINDS.values()
    ]
    lines += ["", "## Kill by kill", "", *_by_kill(guarantees), "", "## The passing inconsistency", ""]
    lines += list(_passing(guarantees))
    lines += ["", "## Where reality and theory part", "", *_parted(guarantees), _READ]
    return "\n".join([*lines, _played(guarantees), ""])


def _table(guarantees: Guarantees) -> Iterator[str]:
    yield f"| sink | {' | '.join(source.value for source in reversed(Source))} |"
    yield "|---|---|---|"
    for name, kind in KINDS.items():
        yield f"| {kind.title} | {' | '.join(_box(guarantees.of((name, source))) for source in reversed(Source))} |"


def _box(cell: CellResult | None) -> str:
    return NOT_RUN if cell is None else f"**{_verdict(cell)}**: {_figures(cell)}"


def _verdict(cell: CellResult) -> str:
    if cell.measured is cell.promised:
        return cell.measured.value
    return f"{cell.measured.value} (theory: {cell.promised.value})"


def _figures(cell: CellResult) -> str:
    sent = sum(blow.sent for blow in cell.blows)
    told = [f"{len(cell.blows)} kills, {cell.lost} lost and {cell.doubled} doubled of {sent}"]
    told += [f"{cell.in_part} batches seen in part"] if cell.in_part else []
    told += ["older values came back"] if cell.went_back else []
    return ", ".join(told)


def _by_kill(guarantees: Guarantees) -> Iterator[str]:
    yield f"| sink | killed when | {' | '.join(source.value for source in reversed(Source))} |"
    yield "|---|---|---|---|"
    for name, kind in KINDS.items():
        cells = [guarantees.of((name, source)) for source in reversed(Source)]
        for point, meaning in kind.points.items():
            boxes = (_became(_of_point(cell, point)) for cell in cells)
            yield f"| {kind.title} | {meaning} | {' | '.join(boxes)} |"


def _of_point(cell: CellResult | None, point: str) -> Blow | None:
    return next((blow for blow in cell.blows if blow.point == point), None) if cell else None


def _became(blow: Blow | None) -> str:
    if blow is None:
        return NOT_RUN
    parts = [f"{count} {what}" for count, what in ((blow.lost, "lost"), (blow.doubled, "doubled")) if count]
    return f"{', '.join(parts)} of {blow.sent}" if parts else "each row once"


def _passing(guarantees: Guarantees) -> Iterator[str]:
    cells = [cell for cell in guarantees.cells if cell.went_back]
    for cell in cells:
        yield f"- {KINDS[cell.sink].title}, {cell.of[1].value}: a reader saw {cell.example}."
    if not cells:
        yield "No reader saw an older value come back."


def _parted(guarantees: Guarantees) -> Iterator[str]:
    cells = [cell for cell in guarantees.cells if cell.measured is not cell.promised]
    for cell in cells:
        why = PARTED.get(cell.of, "nobody knows why")
        yield f"- {KINDS[cell.sink].title}, {cell.of[1].value}: {why}"
    if not cells:
        yield "Nowhere."


def _played(guarantees: Guarantees) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in guarantees.versions.items())
    return f"{_extent(guarantees)}; {versions}."


def _extent(guarantees: Guarantees) -> str:
    return f"{len(guarantees.cells)} cells, {guarantees.kills} streams killed in {guarantees.drivers} drivers"
