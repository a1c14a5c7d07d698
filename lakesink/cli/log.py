"""The command ``log``: the batches that a table's snapshots still show."""

import click

from lakesink.cli.output import Report, reporting


@click.command(
    help="Batches of TABLE or DIRECTORY with snapshot, rows, files, bytes, source offsets and time, newest last."
)
@click.argument("table", metavar="TABLE|DIRECTORY")
@click.option("--sink", metavar="ID", help="Only this sink id or application id.")
@click.option("--branch", metavar="NAME", help="Only this branch.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="The newest so many.")
@reporting
def log(table: str, catalog: str | None, sink: str | None, branch: str | None, limit: int) -> Report:
    """Exit code 1: no batch is retained."""
    from lakesink.cli import directory, looking  # noqa: PLC0415 - PyIceberg takes a second to import; help must not

    if directory.is_directory(table, catalog):
        return directory.log_of_directory(table, sink=sink, branch=branch, limit=limit)
    return looking.log_report(table, catalog, sink=sink, branch=branch, limit=limit)
