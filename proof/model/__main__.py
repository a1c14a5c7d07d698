"""``python -m proof.model``: explores the formal model by spin."""

import json
import sys

import click

from lakesink_tools.cli.output import progress
from proof.model.page import DOCS, pages, text
from proof.model.run import run
from proof.model.spin import CannotCheck


@click.command()
@click.option("--seconds", type=float, help="Most that one exploration may take.")
@click.option("--seed", type=int, default=0, show_default=True, help="First seed of the stories for the checker.")
@click.option("--short", is_flag=True, help="Without what takes long.")
@click.option("--write", is_flag=True, help="Renew docs/evidence/model.md and docs/evidence/model-stories.md.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(*, seconds: float | None, seed: int, short: bool, write: bool, output: str) -> None:
    """Explore the protocol whole, and without each of its rules. Exit code 1: it is broken; 2: it could not be run."""
    try:
        with progress() as say:
            figures = run(seconds, seed, say, short=short)
    except CannotCheck as reason:
        click.echo(str(reason), err=True)
        sys.exit(2)
    click.echo(json.dumps(figures.to_json(), indent=2) if output == "json" else text(figures))
    if write:
        for name, page in pages(figures).items():
            (DOCS / name).write_text(page)
    sys.exit(1 if figures.broken else 0)


if __name__ == "__main__":
    main()
