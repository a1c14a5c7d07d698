"""``python -m proof.contrast``: lakesink beside three other ways to write a stream into an Iceberg table."""

import json
import sys
from pathlib import Path

import click

from lakesink_tools.cli.output import progress
from proof.contrast.cases import CASES
from proof.contrast.page import markdown, text
from proof.contrast.run import run
from proof.contrast.sinks import SINKS

_NAMES = click.Choice([case.name for case in CASES])


@click.command()
@click.option("--case", "cases", type=_NAMES, multiple=True, help="Only this one; may be given again.")
@click.option("--sink", "sinks", type=click.Choice(list(SINKS)), multiple=True, help="Only this one; likewise.")
@click.option("--seconds", type=float, help="Begin nothing new after that time.")
@click.option("--markdown", "page", type=click.Path(path_type=Path), help="Write the page into this file.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(
    *, cases: tuple[str, ...], sinks: tuple[str, ...], seconds: float | None, page: Path | None, output: str
) -> None:
    """Play every case for every sink. Exit code 1: lakesink broke a promise; 2: something could not be run."""
    chosen = [case for case in CASES if not cases or case.name in cases]
    with progress() as say:
        contrast = run(seconds, 0, say, cases=chosen, sinks=sinks or tuple(SINKS))
    if page:
        page.write_text(markdown(contrast))
    click.echo(json.dumps(contrast.to_json(), indent=2) if output == "json" else text(contrast))
    sys.exit(1 if contrast.broken else 2 if contrast.not_run else 0)


if __name__ == "__main__":
    main()
