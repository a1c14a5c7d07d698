"""What came between two batches of a table, turned into a report. Only reads."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lakesink.audit.as_of import look_back
from lakesink.audit.changes import Changes, changes
from lakesink.audit.finding import sink_label
from lakesink.audit.which import Chosen, Past, by_batch
from lakesink.cli.output import Report, number, printable
from lakesink.cli.rows import cells, documents
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import time_of
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.ledger import mark_of

FOREIGN = "others"


@dataclass(frozen=True, slots=True)
class Stretch:
    """From where to where."""

    from_batch: int  # the batch after which it begins; -1 for the empty table
    to_batch: int  # the batch that it ends with
    sink: str | None  # whose batches; None where there is but one sink
    branch: str


def diff_report(identifier: str, catalog: str | None, stretch: Stretch, limit: int) -> Report:
    """What came between two batches."""
    table = load_table(connect(catalog, create=False), identifier)
    past = look_back(table, identifier, stretch.branch)
    newer = by_batch(past, stretch.to_batch, stretch.sink)
    older = None if stretch.from_batch < 0 else by_batch(past, stretch.from_batch, stretch.sink)
    start = older.snapshot_id if older else None
    found = changes(table, start, newer.snapshot_id, limit)
    commits, linked = _commits(past, start, newer.snapshot_id)
    shown = documents(found.sample)
    assert newer.key is not None, "a batch has a sink"
    return Report(
        document={
            "table": identifier,
            "catalog": table.catalog.name,
            "branch": stretch.branch,
            "sink": newer.key.name,
            "from": _end(past, older, stretch.from_batch),
            "to": _end(past, newer, stretch.to_batch),
            "rows_added": found.rows_added,
            "rows_removed": found.rows_removed,
            "files_added": found.files_added,
            "files_removed": found.files_removed,
            "compared": "rows" if found.compared else "files",
            "commits": dict(commits) if linked else None,
            "sample": shown,
        },
        title=printable(
            f"{identifier} in {table.catalog.name}: {number(found.rows_added)} rows added after batch"
            f" {stretch.from_batch} up to batch {stretch.to_batch} of {sink_label(newer.key)},"
            f" {number(found.files_added)} files"
        ),
        columns=found.sample.column_names,
        rows=cells(shown),
        hints=[
            printable(hint) for hint in _hints(identifier, stretch, found, [older, newer], commits if linked else None)
        ],
    )


def _end(past: Past, chosen: Chosen | None, batch_id: int) -> dict[str, Any]:
    if chosen is None:
        return {"batch_id": batch_id, "snapshot_id": None, "committed_at": None, "note": "the empty table"}
    at = time_of(past.snapshots[chosen.snapshot_id].timestamp_ms)
    return {"batch_id": batch_id, "snapshot_id": chosen.snapshot_id, "committed_at": at, "note": chosen.note}


def _commits(past: Past, start: int | None, end: int) -> tuple[Counter[str], bool]:
    """Snapshots of each writer after `start` up to `end`, and whether links lead from one to the other."""
    found: Counter[str] = Counter()
    first: int | None = None
    for snapshot in past.ancestry(end):
        if snapshot.snapshot_id == start:
            return found, True
        mark = mark_of(snapshot.summary)
        found[sink_label(mark.key) if mark else FOREIGN] += 1
        first = snapshot.sequence_number
    return found, start is None and first == 1


def _hints(
    identifier: str, stretch: Stretch, found: Changes, ends: Sequence[Chosen | None], commits: Counter[str] | None
) -> list[str]:
    shown = found.sample.num_rows
    lines = (
        [f"{number(shown)} of {number(found.rows_added)} rows shown; --limit shows more."]
        if shown < found.rows_added
        else []
    )
    if found.compared:
        lines.append(
            f"Somebody rewrote or deleted between: {number(found.files_removed)} files of batch {stretch.from_batch}"
            f" are gone or have other deletes, so rows were compared; {number(found.rows_removed)} rows were removed."
        )
    if commits is None:
        lines.append("Snapshots between have expired or were rolled back: who wrote these rows is not shown any more.")
    elif len(commits) > 1:
        who = ", ".join(f"{name} {number(count)}" for name, count in sorted(commits.items()))
        lines.append(f"The rows are of every writer to the branch. Commits between: {who}.")
    lines += [end.note for end in ends if end and end.note]
    sink = f" --sink {stretch.sink}" if stretch.sink else ""
    branch = "" if stretch.branch == "main" else f" --branch {stretch.branch}"
    return [*lines, f"Next: lakesink as-of {identifier} --batch {stretch.to_batch}{sink}{branch} --read"]
