"""``python -m proof.grid``: the crash grid, a sample of it or whole."""

import json
import sys
from pathlib import Path

import click

from lakesink_tools.cli.output import progress
from proof.grid.cells import all_cells
from proof.grid.figures import GridFigures
from proof.grid.page import renewed, text
from proof.grid.run import run
from proof.grid.turns import spread
from proof.provenance import PRODUCT, commit

CI_CELLS = 60


@click.command()
@click.option("--sample", type=int, default=CI_CELLS, show_default=True, help="So many cells, spread over the grid.")
@click.option("--all", "whole", is_flag=True, help="Every cell.")
@click.option("--cell", help="Cells whose name contains this.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the order of cells, and of the random kills.")
@click.option("--kills", type=int, default=0, show_default=True, help="SIGKILLs at random moments, besides.")
@click.option("--seconds", type=float, help="Begin nothing new after that time.")
@click.option("--spark/--no-spark", default=True, show_default=True, help="Cells on real Spark, too.")
@click.option("--markdown", "page", type=click.Path(path_type=Path), help="Renew the grid in this file.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(  # noqa: PLR0913 # a command's arguments are its options
    *,
    sample: int,
    whole: bool,
    cell: str | None,
    seed: int,
    kills: int,
    seconds: float | None,
    spark: bool,
    page: Path | None,
    output: str,
) -> None:
    """Cross every failpoint with every fault on real processes. Exit code 1: something is broken."""
    chosen = [one for one in all_cells() if (cell or "") in one.name and (spark or not one.on_spark)]
    if not chosen:
        sys.exit(f"No cell has {cell!r} in its name; a name is: {all_cells()[0].name}")
    if not (whole or cell):
        chosen = spread(chosen, seed)[:sample]
    with progress() as say:
        figures = run(seconds, seed, say, cells=None if len(chosen) == len(all_cells()) else chosen, kills=kills)
    if page:
        before = page.read_text() if page.exists() else ""
        page.write_text(renewed(before, figures, commit(*PRODUCT)))
    click.echo(_told(figures, output))
    sys.exit(1 if figures.broken else 0)


def _told(figures: GridFigures, output: str) -> str:
    return json.dumps(figures.to_json(), indent=2) if output == "json" else text(figures)


if __name__ == "__main__":
    main()
