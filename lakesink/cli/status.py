"""The command ``status``: how each sink of a table stands."""

from datetime import timedelta

import click

from lakesink.cli.output import Report, reporting
from lakesink.settings.values import duration


def _max_age(_: click.Context, __: click.Parameter, value: str | None) -> timedelta | None:
    try:
        return None if value is None else duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(
    help="The last batch of each sink of TABLE or DIRECTORY, since when, totals, and whether the next will be taken."
)
@click.argument("table", metavar="TABLE|DIRECTORY")
@click.option("--max-age", callback=_max_age, metavar="SPAN", help="Exit with 1 if a last batch is older: '30 min'.")
@reporting
def status(table: str, catalog: str | None, max_age: timedelta | None) -> Report:
    """Exit code 1: no sink, or one whose next batch would be refused or whose last one is too old."""
    from lakesink.cli import directory, looking  # noqa: PLC0415 - PyIceberg takes a second to import; help must not

    if directory.is_directory(table, catalog):
        return directory.status_of_directory(table, max_age)
    return looking.status_report(table, catalog, max_age)
