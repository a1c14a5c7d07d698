"""The command ``diff``: rows that came into a table after one batch, up to and including another. Only reads."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import total_changes
from lakesink_catalog.read.past import FIRST_SEQUENCE, PastCommit
from lakesink_catalog.tables.tables import load_table
from lakesink_catalog.words import as_arguments, changed, counted, number
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_protocol.row_changes import ChangeCounts
from lakesink_tools.cli.output import Report, invalid
from lakesink_tools.cli.rows import cells, documents
from lakesink_tools.past.as_of import look_back
from lakesink_tools.past.need_duckdb import check_duckdb
from lakesink_tools.past.resolve_snapshot import Chosen, LookBack, by_batch

if TYPE_CHECKING:
    from lakesink_tools.past.changes import Changes

FOREIGN = "others"


def diff(
    *, table: str, catalog: str | None, from_batch: int, to_batch: int, sink: str | None, branch: str, limit: int
) -> Report:
    """Exit code 2: a batch is not there, or not there any more, or rows cannot be compared."""
    if from_batch >= to_batch:
        raise invalid("--to-batch is not above --from-batch.", "Give an earlier batch as --from-batch.")
    check_duckdb("lakesink diff")
    from lakesink_tools.past.changes import changes  # DuckDB is an extra

    opened = load_table(connect(catalog, create=False), table)
    past = look_back(opened, table, branch)
    newer = by_batch(past, to_batch, sink)
    older = None if from_batch < 0 else by_batch(past, from_batch, sink)
    start = older.commit.snapshot_id if older else None
    end = newer.commit.snapshot_id
    found = changes(opened, start, end, limit)
    between = _between(past, start, end)
    commits = Counter(FOREIGN if one.mark is None else one.mark.key.label for one in between or ())
    by_key = total_changes(one for one in between or () if one.mark is not None)
    shown = documents(found.sample)
    assert newer.key is not None, "a batch has a sink"
    of_sink = f" --sink {sink}" if sink else ""
    of_branch = "" if branch == MAIN_BRANCH else f" --branch {branch}"
    return Report(
        document={
            "table": table,
            "catalog": opened.catalog.name,
            "branch": branch,
            "sink": newer.key.name,
            "from": _end(older, from_batch),
            "to": _end(newer, to_batch),
            "rows_added": found.rows_added,
            "rows_removed": found.rows_removed,
            "files_added": found.files_added,
            "files_removed": found.files_removed,
            "compared": "rows" if found.compared else "files",
            "commits": None if between is None else dict(commits),
            "changes": None if by_key is None else asdict(by_key),
            "sample": shown,
        },
        title=f"{table} in {opened.catalog.name}: {counted(found.rows_added, 'row')} added after batch"
        f" {from_batch} up to batch {to_batch} of {newer.key.label}, {counted(found.files_added, 'file')}",
        columns=found.sample.column_names,
        rows=cells(shown),
        hints=[
            *_hints(found, from_batch, None if between is None else commits, by_key),
            *(end.note for end in (older, newer) if end and end.note),
            f"Next: lakesink as-of {as_arguments(table, catalog)} --batch {to_batch}{of_sink}{of_branch} --read",
        ],
    )


def _end(chosen: Chosen | None, batch_id: int) -> dict[str, Any]:
    if chosen is None:
        return {"batch_id": batch_id, "snapshot_id": None, "committed_at": None, "note": "the empty table"}
    snapshot_id, at = chosen.commit.snapshot_id, chosen.commit.committed_at
    return {"batch_id": batch_id, "snapshot_id": snapshot_id, "committed_at": at, "note": chosen.note}


def _between(past: LookBack, start: int | None, end: int) -> list[PastCommit] | None:
    """The commits after `start` up to `end`, newest first; None unless links lead from one to the other."""
    found: list[PastCommit] = []
    for commit in past.retained.ancestry(end):
        if commit.snapshot_id == start:
            return found
        found.append(commit)
    return found if start is None and found[-1].sequence_number == FIRST_SEQUENCE else None


def _hints(
    found: "Changes", from_batch: int, commits: Counter[str] | None, by_key: ChangeCounts | None
) -> Iterator[str]:
    shown = found.sample.num_rows
    if shown < found.rows_added:
        yield f"{number(shown)} of {counted(found.rows_added, 'row')} shown; --limit shows more."
    if by_key is not None:
        yield f"Changes by key of the batches between: {changed(by_key)}."
    if found.compared:
        who = "Files were rewritten or rows replaced" if by_key else "Others rewrote files or deleted rows"
        yield (
            f"{who}, in {counted(found.files_removed, 'file')} of batch {from_batch}."
            f" So rows were compared: {counted(found.rows_removed, 'row')} removed."
        )
    if commits is None:
        yield "Snapshots between have expired or were rolled back, so the writers of these rows are unknown."
    elif len(commits) > 1:
        who = ", ".join(f"{name} {number(count)}" for name, count in sorted(commits.items()))
        yield f"The rows are from all writers to the branch. Commits between: {who}."
