"""The command ``engines``: configuration and first queries for another engine, ready to paste."""

import click

from lakesink.cli.output import Report, invalid, reporting

ENGINES = ("trino", "spark", "duckdb", "flink", "pyiceberg")


@click.command("engines", help="Configuration and first queries for another engine, for this catalog and TABLE.")
@click.argument("table")
@click.option("--for", "engine", type=click.Choice(ENGINES), required=True, help="The engine.")
@click.option("--batch", type=click.IntRange(0), metavar="N", help="Go back to this batch.  [default: the newest]")
@click.option("--sink", metavar="ID", help="Whose batch; needed if several sinks write to main.")
@reporting
def engines(*, table: str, catalog: str | None, engine: str, batch: int | None, sink: str | None) -> Report:
    """Exit code 2: there is no such table or batch, or no recipe for it."""
    if sink is not None and batch is None:
        raise invalid("--sink goes with --batch.", "Give --batch too.")
    from lakesink.cli import recipes  # noqa: PLC0415 - PyIceberg takes a second to import; help must not

    return recipes.engines_report(table, catalog, engine, batch=batch, sink=sink)
