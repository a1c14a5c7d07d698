"""The command ``audit``: what arrived, proved from the table alone."""

import click

from lakesink.cli.output import Report, reporting


@click.command(
    help="Prove from TABLE, or DIRECTORY of stream_files, alone that every batch is there once, whole and readable."
)
@click.argument("table", metavar="TABLE|DIRECTORY")
@click.option("--checkpoint", metavar="DIR", help="Spark's checkpoint: is every batch that it calls done in the table?")
@click.option("--sink", metavar="ID", help="Only this sink's batches and ledger; files are looked at whole anyway.")
@click.option("--skip-footers", is_flag=True, help="Compare sizes alone, not row counts with Parquet footers.")
@reporting
def audit(table: str, catalog: str | None, checkpoint: str | None, sink: str | None, *, skip_footers: bool) -> Report:
    """Exit code 1: something is not as it must be; 2: some could not be looked at; 3: all was accepted."""
    from lakesink.cli import directory, proving  # noqa: PLC0415 - PyIceberg takes a second to import; help must not

    if directory.is_directory(table, catalog):
        return directory.audit_of_directory(table, checkpoint=checkpoint, sink=sink)
    return proving.audit_report(table, catalog, checkpoint=checkpoint, sink=sink, footers=not skip_footers)
