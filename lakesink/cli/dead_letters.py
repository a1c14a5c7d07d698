"""The command ``dead-letters``: the rows that a stream put aside, and why. Only reads."""

from typing import Any

from lakesink.audit.dead_letters import Reason, Wanted, newest, reasons
from lakesink.cli.output import NOT_WELL, OK, Report
from lakesink.cli.rows import documents_of
from lakesink.words import as_arguments, counted, moment, number
from lakesink.writer.letters import SUFFIX
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table

_COLUMNS = ("sink", "batch>", "found (UTC)", "reason", "column", "detail", "place", "payload")


def dead_letters(
    table: str,
    catalog: str | None,
    letters: str | None,
    sink: str | None,
    batch: int | None,
    reason: str | None,
    limit: int,
) -> Report:
    """Exit code 1: there are dead letters."""
    name = letters or (table if table.endswith(SUFFIX) else f"{table}{SUFFIX}")
    opened = load_table(connect(catalog, create=False), name)
    wanted = Wanted(sink, batch, reason)
    by_reason, shown = reasons(opened, wanted), newest(opened, wanted, limit)
    total = sum(one.letters for one in by_reason)
    return Report(
        document={
            "table": name,
            "catalog": opened.catalog.name,
            "letters": total,
            "reasons": [
                {"sink": one.sink, "reason": one.reason, "column": one.column, "letters": one.letters}
                for one in by_reason
            ],
            "newest": documents_of(shown),
        },
        title=f"{name} in {opened.catalog.name}: {counted(total, 'dead letter')}",
        columns=_COLUMNS,
        rows=[_row(one) for one in shown],
        hints=_hints(as_arguments(table, catalog), by_reason, hidden=total - len(shown)),
        exit_code=NOT_WELL if total else OK,
    )


def _row(letter: dict[str, Any]) -> list[str]:
    payload = letter["payload"]
    return [
        str(letter["sink"]),
        number(letter["batch_id"]),
        moment(letter["found_at"]),
        str(letter["reason"]),
        letter["column_name"] or "",
        letter["detail"] or "",
        _place(letter),
        payload if payload is not None else f"{len(letter['payload_bytes'] or b''):,} bytes",
    ]


def _place(letter: dict[str, Any]) -> str:
    if letter["topic"] is not None:
        return f"{letter['topic']} {letter['partition']}/{letter['offset']}"
    return str(letter["source"] or "")


def _hints(arguments: str, found: list[Reason], *, hidden: int) -> list[str]:
    if not found:
        return [f"Nothing was put aside. Next: lakesink quality {arguments}"]
    told = [
        f"{one.sink}: {counted(one.letters, 'letter')} with {one.reason}{f' ({one.column})' if one.column else ''}."
        for one in found
    ]
    older = [f"Not shown: {counted(hidden, 'older letter')}; --limit shows more."] if hidden else []
    return [*told, *older, f"Next: lakesink explain {found[0].reason}"]
