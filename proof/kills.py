"""``python -m proof.kills``: SIGKILLs at random moments, to streams that append, or that change rows by key."""

import json
import sys
from dataclasses import asdict

import click

from lakesink_tools.cli.output import progress
from proof.grid.figures import RandomKills
from proof.grid.kills import random_kills
from proof.grid.run import machine
from proof.outcome import Progress


@click.command()
@click.option("--kills", default=300, show_default=True, help="How many.")
@click.option("--seed", default=0, show_default=True, help="Of their moments, and of the changes.")
@click.option("--append", is_flag=True, help="Streams that append, instead of those that replace and delete by key.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(*, kills: int, seed: int, append: bool, output: str) -> None:
    """Kill drivers again and again, and judge the tables. Exit code 1: something is broken."""
    with progress() as say:
        found = run(kills, seed, say, by_key=not append)
    click.echo(json.dumps(asdict(found), indent=2) if output == "json" else text(found))
    sys.exit(1 if found.broken else 0)


def run(kills: int, seed: int, say: Progress, *, by_key: bool) -> RandomKills:
    """The kills, on a machine of their own."""
    with machine() as on:
        return random_kills(on.folder, kills, seed, say, by_key=by_key)


def text(found: RandomKills) -> str:
    """For the terminal."""
    lines = [f"{what}: {figure}" for what, figure in found.lines]
    return "\n".join([*lines, *(f"BROKEN {what}" for what in found.broken)])


if __name__ == "__main__":
    main()
