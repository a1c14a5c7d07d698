"""The command ``restore``: sets a lost ledger entry again."""

from functools import partial

import click

from lakesink.cli.output import Report, confirmed, reporting
from lakesink.operate.forget import restore_sink


@click.command(help="Set the lost ledger entry of a sink of TABLE again, from its newest batch there; no row changes.")
@click.argument("table")
@click.option("--sink", required=True, metavar="ID", help="Sink id, or with --txn an application id.")
@click.option("--branch", default="main", show_default=True, help="Branch that it writes.")
@click.option("--txn", is_flag=True, help="An application id of lakesink.append.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@reporting
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
