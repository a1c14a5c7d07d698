"""The command ``forget``: retires a sink that will not come back."""

from functools import partial

import click

from lakesink.cli.output import Report, confirmed, reporting
from lakesink.operate.forget import forget_sink
from lakesink.words import number


@click.command(help="Retire a sink of TABLE: its ledger entry and ledger tag go, its rows and snapshots stay.")
@click.argument("table")
@click.option("--sink", required=True, metavar="ID", help="Sink id, or with --txn an application id.")
@click.option("--branch", default="main", show_default=True, help="Branch that it wrote.")
@click.option("--txn", is_flag=True, help="An application id of lakesink.append.")
@click.option("--tags", is_flag=True, help="Remove its audit tags (tag_every) too; expiry may take what they kept.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@reporting
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
        title=f"{table} has forgotten {sink}: snapshot {done.snapshot_id} of branch {done.branch} says so.",
        hints=[
            f"Left where they are: its rows, its snapshots, and its prepared records in {done.records}",
            f"Audit tags removed: {number(len(done.audit_tags))}."
            if tags
            else "Its audit tags stay; --tags removes them.",
            "The sink id stays retired: a stream of that name is refused while the branch has a batch of it.",
            f"Next: lakesink status {table}",
        ],
    )
