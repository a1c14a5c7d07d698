"""The command ``forget``: retires a sink that will not come back."""

from functools import partial

from lakesink_catalog.words import as_arguments, number
from lakesink_tools.cli.output import Report, confirmed
from lakesink_tools.operate.forget import forget_sink


def forget(table: str, catalog: str | None, sink: str, branch: str, *, txn: bool, tags: bool, yes: bool) -> Report:
    """Exit code 2: there is no such sink, or the catalog did not take the commit."""
    confirm = partial(confirmed, yes=yes)
    done = forget_sink(table, catalog, sink=sink, branch=branch, txn=txn, tags=tags, confirm=confirm)
    return Report(
        document={
            "table": table,
            "sink": sink,
            "branch": branch,
            "snapshot_id": done.snapshot_id,
            "prepared_records": done.records,
            "audit_tags": done.audit_tags,
        },
        title=f"Removed {sink} from {table} in snapshot {done.snapshot_id} of branch {done.branch}.",
        hints=[
            f"Kept: its rows, its snapshots, and its prepared records in {done.records}",
            f"Audit tags removed: {number(len(done.audit_tags))}."
            if tags
            else "Its audit tags stay; --tags removes them.",
            "A stream with this sink id is refused while the branch has a batch of it.",
            f"Next: lakesink status {as_arguments(table, catalog)}",
        ],
    )
