"""``python -m proof.contest``: what sinks make of lost answers, lost checkpoints and deaths of their drivers."""

import json
import logging
import sys

import click

from lakesink_tools.cli.output import progress
from proof.contest.cases import CASES
from proof.contest.page import PAGES, Page, text
from proof.contest.run import Contest, run
from proof.contest.sinks import SINKS
from servers.jars import ROOT


@click.command()
@click.option("--case", "cases", type=click.Choice(list(CASES)), multiple=True, help="Only this; may be given again.")
@click.option("--sink", "sinks", type=click.Choice(list(SINKS)), multiple=True, help="Only this; likewise.")
@click.option("--write", is_flag=True, help="Renew these on their pages.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(*, cases: tuple[str, ...], sinks: tuple[str, ...], write: bool, output: str) -> None:
    """Play every case for every sink. Exit code 1: a promise is broken; 2: something could not be run."""
    logging.disable(logging.CRITICAL)
    with progress() as say:
        found = run(say, [CASES[name] for name in cases or CASES], [SINKS[name] for name in sinks or SINKS])
    click.echo(json.dumps(found.to_json(), indent=2) if output == "json" else text(found))
    if write:
        write_pages(found)
    sys.exit(1 if found.broken else 2 if found.not_run else 0)


def published(page: Page) -> Contest:
    """What a page shows."""
    return Contest.from_json(json.loads((ROOT / "docs/data" / page.figures).read_text()))


def write_pages(found: Contest) -> None:
    """The figures and the tables of every page of which something was played."""
    for page in PAGES:
        if (shown := found.only(page.cases)).results:
            shown = shown.together(published(page))
            (ROOT / "docs/data" / page.figures).write_text(json.dumps(shown.to_json(), indent=1) + "\n")
            path = ROOT / "docs/evidence" / page.name
            path.write_text(page.renewed(path.read_text(), shown))


if __name__ == "__main__":
    main()
