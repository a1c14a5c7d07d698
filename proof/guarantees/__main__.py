"""``python -m proof.guarantees``: what each kind of sink makes of each kind of source when drivers die."""

import json
import logging
import sys

import click

from lakesink_tools.cli.output import progress
from proof.guarantees.cells import KINDS, Source
from proof.guarantees.page import markdown, renewed, text
from proof.guarantees.play import whole
from proof.guarantees.run import Guarantees, run
from servers.jars import ROOT

FIGURES = ROOT / "docs/data/guarantees.json"
PAGE = ROOT / "docs/evidence/guarantee-table.md"
INCLUDING = (ROOT / "docs/start/concepts.md",)
_SOURCES = {source.name.lower(): source for source in Source}


@click.command()
@click.option("--sink", "sinks", type=click.Choice(list(KINDS)), multiple=True, help="Only this; may be given again.")
@click.option("--source", "sources", type=click.Choice(list(_SOURCES)), multiple=True, help="Only this; likewise.")
@click.option("--write", is_flag=True, help="Renew these cells in the pages.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(*, sinks: tuple[str, ...], sources: tuple[str, ...], write: bool, output: str) -> None:
    """Run the guarantee table. Exit code 1: a cell is not what was promised; 2: something could not be run."""
    logging.disable(logging.CRITICAL)
    asked = [_SOURCES[source] for source in sources or _SOURCES]
    with progress() as say:
        found = run(say, [whole(sink, asked) for sink in KINDS if sink in (sinks or KINDS)])
    click.echo(json.dumps(found.to_json(), indent=2) if output == "json" else text(found))
    if write:
        write_pages(found.together(published()) if FIGURES.exists() else found)
    sys.exit(1 if found.broken else 2 if found.not_run else 0)


def published() -> Guarantees:
    """What the pages show."""
    return Guarantees.from_json(json.loads(FIGURES.read_text()))


def write_pages(found: Guarantees) -> None:
    """The figures, the page of the table, and the pages that include it."""
    FIGURES.write_text(json.dumps(found.to_json(), indent=2) + "\n")
    PAGE.write_text(markdown(found))
    for page in INCLUDING:
        page.write_text(renewed(page.read_text(), found))


if __name__ == "__main__":
    main()
