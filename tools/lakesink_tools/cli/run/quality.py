"""The command ``quality``: the expectations of a table's batches over time. Only reads."""

from dataclasses import asdict

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.past import retained
from lakesink_catalog.tables.tables import load_to_read
from lakesink_catalog.words import as_arguments, counted, number
from lakesink_protocol.identity import SinkKey, SinkKind
from lakesink_tools.cli.output import NOT_WELL, OK, Report
from lakesink_tools.past.quality_history import QualityCheck, checks_of, shares
from lakesink_tools.past.records import sink_label

_COLUMNS = ("sink", "branch", "check", "batches>", "rows>", "not met>", "share>", "last batch>", "over time")
_NONE, _BARS = "·", "▁▂▃▄▅▆▇█"
_WIDEST = 40


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


def drawn(found: list[float]) -> str:
    """One character for each share: a point for zero, else a bar by its part of the largest."""
    top = max(found, default=0.0)
    return "".join(_BARS[min(int(one / top * len(_BARS)), len(_BARS) - 1)] if one else _NONE for one in found)


def _row(check: QualityCheck) -> list[str]:
    percent = check.share * 100
    share = f"{percent:.2f} %" if percent >= 0.01 else "< 0.01 %"  # a small share is never shown as none
    return [
        sink_label(SinkKey(check.sink, check.branch, SinkKind(check.kind))),
        check.branch,
        check.name,
        number(len(check.batches)),
        number(check.rows),
        number(check.found),
        share if percent else "0 %",
        number(check.last),
        drawn(shares(check.batches, _WIDEST)),
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
