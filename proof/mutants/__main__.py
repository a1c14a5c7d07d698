"""``python -m proof.mutants``: every mutant before both layers, and the table of what saw it."""

import json
import logging
import sys

import click

from lakesink_tools.cli.output import progress
from proof.mutants import MUTANTS
from proof.mutants.figures import MutantFigures, table
from proof.mutants.run import STARTS, run


@click.command()
@click.option("--mutant", help="Mutants whose name contains this.")
@click.option("--seed", type=int, default=0, show_default=True, help="First seed of the first start.")
@click.option("--starts", type=int, default=STARTS, show_default=True, help="First seeds for the median.")
@click.option("--seconds", type=float, help="Begin no new start after that time.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(mutant: str | None, seed: int, starts: int, seconds: float | None, output: str) -> None:
    """Put seeded bugs into the product, and see who sees them. Exit code 1: somebody does not."""
    logging.disable(logging.CRITICAL)
    chosen = [one for one in MUTANTS if (mutant or "") in one.name]
    if not chosen:
        sys.exit(f"No mutant has {mutant!r} in its name; the names are: {', '.join(one.name for one in MUTANTS)}")
    with progress() as say:
        figures = run(seconds, seed, say, mutants=chosen, starts=starts)
    click.echo(json.dumps(figures.to_json(), indent=2) if output == "json" else _text(figures))
    sys.exit(1 if figures.broken else 0)


def _text(figures: MutantFigures) -> str:
    lines = [table(figures), "", f"{figures.caught} of {len(figures.results)} mutants are seen by both layers."]
    lines += [f"{one.name}: seen by {one.test}" for one in figures.tested if one.seen]
    lines += [f"NOT WELL: {what}" for what in figures.broken]
    if figures.broken:
        lines.append("Next: python -m proof.mutants --mutant <name>, and see what the layer lacks.")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
