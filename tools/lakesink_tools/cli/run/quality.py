"""The command ``quality``: of every check, what each batch says in its snapshot's summary. Only reads."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.past import PastCommit, retained
from lakesink_catalog.words import as_arguments, counted, number
from lakesink_protocol.identity import SinkKey, SinkKind
from lakesink_protocol.measures import DEAD_LETTERS, TOLD, UNMET_ROWS
from lakesink_tools.cli.output import NOT_WELL, OK, Report
from lakesink_tools.past.lean import load_to_read
from lakesink_tools.past.records import record_of

_COLUMNS = ("sink", "branch", "check", "batches>", "rows>", "not met>", "share>", "last batch>", "over time")
_NONE, _BARS = "·", "▁▂▃▄▅▆▇█"
_WIDEST = 40
_OWN = {f"{one.word}s": one for one in TOLD if one is not UNMET_ROWS}
"""Checks that lakesink makes by itself. The others have the names of expectations, which have no blank."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One check of one batch."""

    batch_id: int
    rows: int
    found: int


@dataclass(slots=True)
class QualityCheck:
    """One check of one sink, over the batches that made it, oldest first."""

    sink: str
    branch: str
    kind: str
    name: str
    batches: list[Checked] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows of all these batches."""
        return sum(batch.rows for batch in self.batches)

    @property
    def found(self) -> int:
        """Rows that did not meet it."""
        return sum(batch.found for batch in self.batches)

    @property
    def share(self) -> float:
        """Part of the rows that did not meet it, from 0 to 1."""
        return share_of(self.batches)

    @property
    def last(self) -> int | None:
        """The newest batch with such rows; None if there is none."""
        return next((batch.batch_id for batch in reversed(self.batches) if batch.found), None)


def checks_of(batches: Iterable[PastCommit]) -> list[QualityCheck]:
    """Every check of these batches, by sink and name; batches that were rolled back do not count.

    A batch states the counts of its expectations, also 0. Of the other checks it states those that found something.
    """
    found: dict[tuple[str, ...], QualityCheck] = {}
    stated = [(batch, _counts(batch)) for batch in batches if batch.is_counted]
    own = {(_key(batch), name) for batch, counts in stated for name in counts if name in _OWN}
    for batch, counts in stated:
        key = _key(batch)
        for name, count in {**{name: 0 for name in _OWN if (key, name) in own}, **counts}.items():
            check = found.setdefault((*key, name), QualityCheck(*key, name))
            kept = batch.rows if batch.changes is None else batch.changes.changes
            check.batches.append(Checked(batch.batch_id, kept + batch.counts[DEAD_LETTERS], count))
    return [found[key] for key in sorted(found)]


def share_of(batches: Sequence[Checked]) -> float:
    """Part of the rows of these batches that did not meet a check, from 0 to 1."""
    rows = sum(batch.rows for batch in batches)
    return sum(batch.found for batch in batches) / rows if rows else 0.0


def _key(batch: PastCommit) -> tuple[str, str, str]:
    key = batch.known_mark.key
    return key.name, key.branch, key.kind.value


def _counts(batch: PastCommit) -> dict[str, int]:
    own = {name: batch.counts[one] for name, one in _OWN.items() if batch.counts[one]}
    return {**record_of(batch).unmet, **own}


def quality(table: str, catalog: str | None, sink: str | None, branch: str | None, limit: int) -> Report:
    """Exit code 1: no batch is retained."""
    opened = load_to_read(connect(catalog, create=False), table)
    batches = retained(opened).batches(sink, branch)
    shown = batches[-limit:]
    checks = checks_of(shown)
    return Report(
        document={
            "table": table,
            "catalog": opened.catalog.name,
            "retained": len(batches),
            "checks": [
                asdict(check)
                | {"rows": check.rows, "found": check.found, "share": check.share, "last_batch": check.last}
                for check in checks
            ],
        },
        title=f"{table} in {opened.catalog.name}: {counted(len(checks), 'check')} of {counted(len(shown), 'batch')}",
        columns=_COLUMNS,
        rows=[_row(check) for check in checks],
        hints=_hints(as_arguments(table, catalog), checks, hidden=len(batches) - len(shown)),
        exit_code=OK if batches else NOT_WELL,
    )


def drawn(batches: Sequence[Checked]) -> str:
    """One character for the share of each batch, or of each of `_WIDEST` groups of successive ones, oldest first.

    A point is zero; a bar shows the part of the largest share.
    """
    groups = min(_WIDEST, len(batches))
    ends = [round(len(batches) * group / groups) for group in range(groups + 1)]
    found = [share_of(batches[start:end]) for start, end in pairwise(ends)]
    top = max(found)
    return "".join(_BARS[min(int(one / top * len(_BARS)), len(_BARS) - 1)] if one else _NONE for one in found)


def _row(check: QualityCheck) -> list[str]:
    percent = check.share * 100
    share = f"{percent:.2f} %" if percent >= 0.01 else "< 0.01 %"  # a small share is never shown as none
    return [
        SinkKey(check.sink, check.branch, SinkKind(check.kind)).label,
        check.branch,
        check.name,
        number(len(check.batches)),
        number(check.rows),
        number(check.found),
        share if percent else "0 %",
        number(check.last),
        drawn(check.batches),
    ]


def _hints(arguments: str, checks: list[QualityCheck], *, hidden: int) -> list[str]:
    older = [f"Not shown: {counted(hidden, 'older batch')}; --limit shows more."] if hidden else []
    if not checks:
        said = "No batch has an expectation, a dead letter or an unknown key."
        return [*older, f"{said} Next: give the stream the option expect."]
    drawing = (
        "Over time: the oldest batches are left; a point means none, the highest bar the largest share of the line."
    )
    return [drawing, *older, f"Next: lakesink log {arguments}"]
