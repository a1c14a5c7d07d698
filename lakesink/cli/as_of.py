"""The command ``as-of``: the snapshot of a batch, a time or a tag, and how to read it."""

from datetime import UTC, datetime

import click

from lakesink.cli.output import Report, invalid, reporting


def _time(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    try:
        time = None if value is None else datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter("expected a time such as 2026-11-21T05:00:12Z; without a zone it is UTC") from None
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


@click.command("as-of", help="The snapshot of TABLE as of a batch, a time or a tag, and SQL to read it.")
@click.argument("table")
@click.option("--batch", type=click.IntRange(0), metavar="N", help="Batch id, or version of an append.")
@click.option("--sink", metavar="ID", help="Whose batch; needed if several sinks write to the branch.")
@click.option("--time", callback=_time, metavar="T", help="What readers saw then: 2026-11-21T05:00:12Z.")
@click.option("--tag", metavar="NAME", help="A tag.")
@click.option("--branch", metavar="NAME", help="Of which branch.  [default: main]")
@click.option("--read", is_flag=True, help="Print rows.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Of --read: at most so many.")
@reporting
def as_of(  # noqa: PLR0913 - click hands over one argument an option
    *,
    table: str,
    catalog: str | None,
    batch: int | None,
    sink: str | None,
    time: datetime | None,
    tag: str | None,
    branch: str | None,
    read: bool,
    limit: int,
) -> Report:
    """Exit code 2: it is not there, not there any more, or not told exactly."""
    if sum(asked is not None for asked in (batch, time, tag)) != 1:
        raise invalid("Not exactly one of --batch, --time and --tag was given.", "Give one of them.")
    if (sink is not None and batch is None) or (branch is not None and tag is not None):
        raise invalid("--sink goes with --batch, and --branch with --batch or --time.", "Leave out what does not fit.")
    from lakesink.audit.as_of import Question  # noqa: PLC0415 - PyIceberg takes a second to import; help must not
    from lakesink.cli import past  # noqa: PLC0415 - as above

    question = Question(batch, time, tag, sink, branch or "main")
    return past.as_of_report(table, catalog, question, limit=limit if read else None)
