"""The command ``restore``: sets a lost ledger entry again."""

from functools import partial

from lakesink_tools.cli.output import Report, confirmed
from lakesink_tools.operate.forget import restore_sink


def restore(table: str, catalog: str | None, sink: str, branch: str, *, txn: bool, yes: bool) -> Report:
    """Exit code 2: the entry cannot be told from the table, or the catalog did not take the commit."""
    confirm = partial(confirmed, yes=yes)
    done = restore_sink(table, catalog, sink=sink, branch=branch, txn=txn, confirm=confirm)
    last = done.entry.batch_id
    title = f"The ledger of {sink} in {table} ends with batch {last}"
    return Report(
        document={
            "table": table,
            "sink": sink,
            "branch": branch,
            "batch_id": last,
            "snapshot_id": done.snapshot_id,
            "offsets": done.entry.offsets,
        },
        title=f"{title}: it was there." if done.snapshot_id is None else f"{title}: restored from its newest snapshot.",
        hints=["Next: start the stream again. If it is refused, the message names the batch that comes next."],
    )
