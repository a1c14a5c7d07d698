"""``python -m proof.guarantees``: what each kind of sink makes of each kind of source when drivers die."""

import json
import logging
import sys

import click

from lakesink_tools.cli.output import progress
from proof.guarantees.cells import KINDS, Source
from proof.guarantees.page import markdown, text
from proof.guarantees.play import whole
from proof.guarantees.run import Guarantees, run
from servers.jars import ROOT

FIGURES = ROOT / "docs/data/guarantees.json"
PAGE = ROOT / "docs/evidence/guarantee-table.md"
_SOURCES = {source.name.lower(): source for source in Source}


@click.command()
@click.option("--sink", "sinks", type=click.Choice(list(KINDS)), multiple=True, help="Only this; may be given again.")
@click.option("--source", "sources", type=click.Choice(list(_SOURCES)), multiple=True, help="Only this; likewise.")
@click.option("--write", is_flag=True, help="Renew these cells on the page.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(*, sinks: tuple[str, ...], sources: tuple[str, ...], write: bool, output: str) -> None:
    """Run the guarantee table. Exit code 1: a cell is not what was promised; 2: something could not be run."""
    logging.disable(logging.CRITICAL)
    asked = [_SOURCES[source] for source in sources or _SOURCES]
    with progress() as say:
        found = run(say, [whole(sink, asked) for sink in KINDS if sink in (sinks or KINDS)])
    click.echo(json.dumps(found.to_json(), indent=2) if output == "json" else text(found))
    if write:
        write_page(found.together(published()) if FIGURES.exists() else found)
    sys.exit(1 if found.broken else 2 if found.not_run else 0)


def published() -> Guarantees:
    """What the page shows."""
    return Guarantees.from_json(json.loads(FIGURES.read_text()))


def write_page(found: Guarantees) -> None:
    """The figures, and the page of the table."""
    FIGURES.write_text(json.dumps(found.to_json(), indent=2) + "\n")
    PAGE.write_text(markdown(found))


if __name__ == "__main__":
    main()
