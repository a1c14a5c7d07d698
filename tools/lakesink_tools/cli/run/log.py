"""The command ``log``: the batches that a table's snapshots still show. Only reads."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.past import PastCommit, retained, text_in
from lakesink_catalog.words import as_arguments, counted, moment, number, rewritten
from lakesink_protocol.ledger import MAINTENANCE
from lakesink_protocol.redact import shown as shortened
from lakesink_tools.cli.output import NOT_WELL, OK, Report
from lakesink_tools.cli.rows import parsed_offsets
from lakesink_tools.cli.target import is_directory
from lakesink_tools.past.lean import load_to_read
from lakesink_tools.past.records import record_of, row_of

_COUNTS = ("files", "into", "rows", "bytes_before", "bytes_after", "dropped", "carried")
_SHOWN, _LONGEST = 3, 20
_COLUMNS = ("sink", "branch", "batch>", "snapshot>", "rows>", "files>", "size>", "committed", "outcome", "offsets")


def log(table: str, catalog: str | None, sink: str | None, branch: str | None, limit: int) -> Report:
    """Exit code 1: no batch is retained."""
    if is_directory(table, catalog):
        from lakesink_tools.cli.directory import log_of_directory  # tables need nothing of it

        return log_of_directory(table, sink=sink, branch=branch, limit=limit)
    opened = load_to_read(connect(catalog, create=False), table)
    past = retained(opened)
    batches = past.batches(sink, branch)
    upkeep = [] if sink or branch else _upkeep(past.commits)
    shown = [record_of(batch) for batch in batches[-limit:]]
    if not shown:
        hints = [f"No batch of lakesink is retained in {table}. Next: lakesink status {as_arguments(table, catalog)}"]
    else:
        hidden, newest = len(batches) - len(shown), shown[-1].snapshot_id
        hints = [f"Not shown: {counted(hidden, 'older batch')}; --limit shows more."] if hidden else []
        hints.append(
            f"Next: read the table as of a batch by its snapshot, for example VERSION AS OF {newest} in Spark."
        )
    cells = [(record, row_of(record)) for record in shown]
    hints[-1:-1] = (
        f"Maintained {moment(one['committed_at'])} in snapshot {one['snapshot_id']}: {rewritten(one)};"
        f" proved by {one['verified']}."
        for one in upkeep[-_SHOWN:]
    )
    return Report(
        document={
            "table": table,
            "catalog": opened.catalog.name,
            "retained": len(batches),
            "batches": [asdict(record) | {"offsets": parsed_offsets(record.offsets)} for record in shown],
            "maintenance": upkeep,
        },
        title=f"{table} in {opened.catalog.name}: {number(len(shown))} of {counted(len(batches), 'retained batch')}",
        columns=_COLUMNS,
        rows=[[*row[:3], str(record.snapshot_id), *row[3:], record.offsets] for record, row in cells],
        hints=hints,
        exit_code=OK if batches else NOT_WELL,
    )


def _upkeep(commits: Sequence[PastCommit]) -> list[dict[str, Any]]:
    """Snapshots of maintenance, by the journals in their summaries, oldest first; any writer can write a summary."""
    found = []
    for commit in commits:
        journal = parsed_offsets(text_in(commit.summary, MAINTENANCE))
        if isinstance(journal, dict) and all(isinstance(journal.get(name), int) for name in _COUNTS):
            counts = {name: journal[name] for name in _COUNTS}
            verified = shortened(str(journal.get("verified")), _LONGEST)
            about = {"snapshot_id": commit.snapshot_id, "committed_at": commit.committed_at}
            found.append({**about, **counts, "verified": verified})
    return found
