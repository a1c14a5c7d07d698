"""The grid as people read it: a text for the terminal, and the published page."""

import re
from collections.abc import Iterable

from proof.grid.cells import (
    BLOWS_OF_DOCUMENTS,
    BLOWS_OF_REPLAYED,
    BLOWS_OF_UPSERTS,
    COMMITS,
    DOCUMENTS,
    EVENTS,
    KEYED_DOCUMENTS,
    MAINTAINED,
    MAINTAINED_ROWS,
    MAINTAINED_UPSERTS,
    REPLAYED,
    ROWS_OF_THE_GRID,
    UPSERTS,
    Blow,
    SparkBlow,
)
from proof.grid.figures import CellResult, GridFigures, Recovery, Verdict
from servers.fault_proxy import Kind


def _columns_of_maintained(kind: str) -> tuple[str, ...]:
    """Blows, and answers of the maintenance's own commit."""
    blows = (f"{kind}: {blow.value}" for blow in BLOWS_OF_DOCUMENTS)
    return (*blows, f"HTTP {Kind.DROP.value}", "HTTP 5xx")


def _columns_of_replayed(kind: str) -> tuple[str, ...]:
    """Blows at the first passage of a point, and kills at each later one."""
    blows = (f"{kind}: {blow.value}" for blow in BLOWS_OF_REPLAYED)
    return (*blows, *(f"{kind}: {Blow.KILL.value}, {commit}" for commit in COMMITS[1:]))


_TABLES = {
    "": {
        "Drivers without Spark": tuple(blow.value for blow in Blow),
        "One commit request spoilt, and a SIGKILL at the point": ("HTTP 4xx", "HTTP 5xx"),
        "Real Spark": tuple(blow.value for blow in SparkBlow),
    },
    DOCUMENTS: {"Drivers without Spark": tuple(f"{DOCUMENTS}: {blow.value}" for blow in BLOWS_OF_DOCUMENTS)},
    UPSERTS: {"Drivers without Spark, and real Spark": tuple(f"{UPSERTS}: {blow.value}" for blow in BLOWS_OF_UPSERTS)},
    **{kind: {"Drivers without Spark": _columns_of_replayed(kind)} for kind in REPLAYED},
    **{kind: {"Drivers without Spark": _columns_of_maintained(kind)} for kind in MAINTAINED},
}
_TITLES = {
    "": "Rows that are appended",
    DOCUMENTS: "Documents that the table follows, dead letters beside it",
    UPSERTS: "Rows that are replaced and deleted by key",
    KEYED_DOCUMENTS: "Documents that replace rows by key, dead letters and a changelog beside the table",
    EVENTS: "Events of Debezium, dead letters and a changelog beside the table",
    MAINTAINED_ROWS: "Rows that are appended to a table that the stream maintains",
    MAINTAINED_UPSERTS: "Rows that are replaced and deleted by key in a table that the stream maintains",
}
"""A part of the page for each kind of stream."""
_PART = re.compile(r"^## (.*)\n", re.MULTILINE)
NOTHING = "."


def text(figures: GridFigures) -> str:
    """For the terminal."""
    counts = ", ".join(f"{figures.count(verdict):,} {verdict.value}" for verdict in Verdict)
    points = ", ".join(f"{point} {count:,}" for point, count in figures.kills_by_point.items())
    recovery = f"{_spoken(figures.recovery)} without Spark, {_spoken(figures.spark_recovery)} on Spark"
    extent = "every cell" if figures.whole else "a sample"
    lines = [
        f"Cells: {counts}; {extent}, seed {figures.seed}; REST catalog: {figures.rest_server or 'none was needed'}.",
        f"SIGKILLs: {sum(figures.kills_by_point.values()):,} ({points or 'none'}).",
        f"From SIGKILL to the next commit: {recovery}.",
        f"Orphans: {figures.orphans_per_1000_faults:,} files for 1,000 faults ({figures.faults:,} faults).",
        f"Traces that the model accepts: {figures.logs_checked:,}.",
    ]
    lines += [f"Explained ({count}): {why}" for why, count in figures.explained.items()]
    lines += [f"BROKEN {what}" for what in figures.broken]
    if figures.broken:
        lines.append("Run one again: python -m proof.grid --cell '<its name>'")
    return "\n".join(lines)


def renewed(page: str, figures: GridFigures, at: str) -> str:
    """The page ``docs/evidence/proof-grid.md``, with what has run now in the place of earlier runs of such streams.

    Args:
        page: As it was; empty if there is none.
        figures: Of this run.
        at: The commit that was run.
    """
    _, *pieces = _PART.split(page)
    parts = dict(zip(pieces[::2], pieces[1::2], strict=True))
    for kind in {cell.kind for cell in figures.cells}:
        parts[_TITLES[kind]] = _part(kind, figures.of_kind(kind), at)
    return _HEAD + "".join(f"\n## {title}\n\n{parts[title].strip()}\n" for title in _TITLES.values() if title in parts)


def _part(kind: str, figures: GridFigures, at: str) -> str:
    lines = [f"- Run at `{at}`.", *(f"- {line}" for line in text(figures).splitlines()), ""]
    spoilt = tuple(sorted({cell.column for cell in figures.cells if cell.column.startswith("HTTP")}))
    for title, columns in _TABLES[kind].items():
        shown = spoilt if "HTTP 4xx" in columns else columns
        lines += [f"### {title}", "", *_table(figures.cells, shown), ""]
    return "\n".join(lines)


def _table(cells: Iterable[CellResult], columns: tuple[str, ...]) -> list[str]:
    found = list(cells)
    lines = [f"| point | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for point in ROWS_OF_THE_GRID:
        boxes = [_box([cell for cell in found if (cell.point, cell.column) == (point, column)]) for column in columns]
        if any(box != NOTHING for box in boxes):
            lines.append(f"| {point} | {' | '.join(boxes)} |")
    return lines


def _box(cells: list[CellResult]) -> str:
    counts = [(sum(cell.verdict is verdict for cell in cells), verdict) for verdict in Verdict]
    return ", ".join(f"{count} {verdict.value}" for count, verdict in counts if count) or NOTHING


def _spoken(recovery: Recovery) -> str:
    if recovery.median_ms is None:
        return "not measured"
    return f"median {recovery.median_ms:,.0f} ms, p99 {recovery.p99_ms:,.0f} ms ({recovery.count:,} times)"


_HEAD = """# The crash grid

Generated by `python -m proof.grid --all --markdown docs/evidence/proof-grid.md`; with `--cell upserts` in the place of
`--all`, cells of such streams alone run and are renewed. Rows are the places where a process dies, or is struck;
columns are what happens to it. Each box counts cells: the first, a middle and the last batch, alone, beside a foreign
writer, and beside expiry as Java and as PyIceberg do it. A cell is *ok* if every row is in the table once,
own and foreign, each file that a snapshot references is there as stated, a reader saw whole batches only,
every driver ended as the fault explains, and the model accepts the steps that the drivers logged. *Explained* cells
were not run, each for the reason given here. At *in the call*, the proxy holds the request or its answer while the
driver is struck; at *nobody dies*, only the request is spoilt. Documents bring columns and wider numbers, and in each
batch some are put aside: then every row is in the table or a dead letter of its batch, every value under its name, and
each column came with one commit. A point of a commit is met first by that of the letters. Of rows by key, the table
must have what the batches leave that are applied to a dictionary, and each snapshot must count its changes so.
Documents that change rows by key have all of this, and a changelog. Their batches come to a point of a commit with the
changelog, the letters and the table, in this order. In the end their letters are repaired and replayed, by processes
that are struck in the same way: first in vain where this would insert a row that may have been deleted, and then as the
operator says. Each letter must be replayed once, and each row of the table, letter and row of the changelog be whole.
A stream that maintains its table replaces its files after each batch: its drivers die in that, and what is spoilt is
the request or the answer of the maintenance.
"""
