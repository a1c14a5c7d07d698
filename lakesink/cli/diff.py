"""The command ``diff``: rows that came into a table after one batch, up to and including another."""

from importlib.util import find_spec

import click

from lakesink.cli.output import Report, invalid, reporting
from lakesink_protocol.errors import SettingsError


@click.command(help="Rows added to TABLE after batch A, up to and including batch B: counted, and some shown.")
@click.argument("table")
@click.option("--from-batch", type=click.IntRange(-1), required=True, metavar="A", help="-1 for the empty table.")
@click.option("--to-batch", type=click.IntRange(0), required=True, metavar="B", help="Above A.")
@click.option("--sink", metavar="ID", help="Whose batches; needed if several sinks write to the branch.")
@click.option("--branch", default="main", show_default=True, help="Of which branch.")
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True, help="Rows to show at most.")
@reporting
def diff(
    *, table: str, catalog: str | None, from_batch: int, to_batch: int, sink: str | None, branch: str, limit: int
) -> Report:
    """Exit code 2: a batch is not there, or not there any more, or rows cannot be compared."""
    if from_batch >= to_batch:
        raise invalid(
            "--to-batch is not above --from-batch.", "Give the batch after which rows count, and a later one."
        )
    if find_spec("duckdb") is None:
        raise SettingsError(
            "DUCKDB_MISSING",
            "lakesink diff counts by DuckDB, which is not installed.",
            action="pip install duckdb",
        )
    from lakesink.cli import past_diff  # noqa: PLC0415 - PyIceberg takes a second to import; help must not

    return past_diff.diff_report(table, catalog, past_diff.Stretch(from_batch, to_batch, sink, branch), limit)
