"""The command ``as-of``: the snapshot of a batch, a time or a tag, and how to read it. Only reads."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.words import changed, moment, number, rows_in_words
from lakesink_tools.cli.output import Report, invalid
from lakesink_tools.cli.rows import cells, documents
from lakesink_tools.past.as_of import AsOf, Question, read
from lakesink_tools.past.as_of import as_of as look_up
from lakesink_tools.past.lean import load_to_read

_NEXT_STEP = "Next: put the engine's catalog name before the table name, and run the SQL"


def as_of(  # noqa: PLR0913 - click hands over one argument an option
    *,
    table: str,
    catalog: str | None,
    batch: int | None,
    sink: str | None,
    time: datetime | None,
    tag: str | None,
    branch: str | None,
    read_rows: bool,
    limit: int,
) -> Report:
    """Exit code 2: it is not there, not there any more, or not told exactly."""
    if sum(asked is not None for asked in (batch, time, tag)) != 1:
        raise invalid("Not exactly one of --batch, --time and --tag was given.", "Give one of them.")
    if (sink is not None and batch is None) or (branch is not None and tag is not None):
        raise invalid("--sink goes with --batch, and --branch with --batch or --time.", "Leave out the wrong option.")
    opened = load_to_read(connect(catalog, create=False), table)
    question = Question(batch, time, tag, sink, branch or "main")
    answer = look_up(opened, table, question)
    rows = read(opened, answer.commit.snapshot_id, limit) if read_rows else None
    found = [] if rows is None else documents(rows)
    document = {"table": table, "catalog": opened.catalog.name, **_document(answer)}
    return Report(
        document=document if rows is None else document | {"read": found},
        title=f"{table} in {opened.catalog.name} as of {_asked(question)}: {_facts(answer)}",
        columns=() if rows is None else rows.column_names,
        rows=cells(found),
        hints=[
            *([f"{number(len(found))} of {_rows(answer)}; --limit shows more."] if read_rows else []),
            *([answer.note] if answer.note else []),
            *(f"Tag {name} moves on with the next batch, so the SQL names the snapshot." for name in answer.moving),
            *(f"{engine + ':':8}{query}" for engine, query in answer.queries.items()),
            f"{_NEXT_STEP}{'.' if read_rows else '; or add --read to see rows here.'}",
        ],
    )


def _document(answer: AsOf) -> dict[str, Any]:
    commit = answer.commit
    return {
        "snapshot_id": commit.snapshot_id,
        "committed_at": commit.committed_at,
        "rows": commit.totals.rows,
        "position_deletes": commit.totals.position_deletes,
        "changes": None if commit.changes is None else asdict(commit.changes),
        "batches": [
            {"sink": key.name, "branch": key.branch, "kind": key.kind.value, "batch_id": batch_id}
            for key, batch_id in answer.batches.items()
        ],
        "tags": answer.tags,
        "note": answer.note,
        "sql": {engine.lower(): query for engine, query in answer.queries.items()},
    }


def _asked(question: Question) -> str:
    if question.tag is not None:
        return f"tag {question.tag}"
    what = f"batch {question.batch_id}" if question.time is None else moment(question.time)
    sink = f" of {question.sink}" if question.sink else ""
    return what + sink + ("" if question.branch == "main" else f" on branch {question.branch}")


def _facts(answer: AsOf) -> str:
    commit = answer.commit
    batches = ", ".join(f"{key.label} {batch_id}" for key, batch_id in answer.batches.items())
    return (
        f"snapshot {commit.snapshot_id}, committed {moment(commit.committed_at)}, {_rows(answer)}"
        + (f", its changes by key: {changed(commit.changes)}" if commit.changes else "")
        + (f", newest batches: {batches}" if batches else ", no batch of lakesink in it")
        + (f", tags: {', '.join(answer.tags)}" if answer.tags else "")
    )


def _rows(answer: AsOf) -> str:
    totals = answer.commit.totals
    return rows_in_words(totals.rows, totals.position_deletes)
