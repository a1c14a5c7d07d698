"""`python -m proof`: all parts of the proof, and one table of what they came to."""

import json
import logging
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from lakesink.cli.output import progress
from proof.outcome import Budget, Outcome
from proof.page import as_text, renewed
from proof.parts import PARTS

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "proof.json"
PAGES = (ROOT / "README.md", ROOT / "docs" / "proof.md")
MINUTES = 40
SHORT_MINUTES = 12


@click.command()
@click.option("--minutes", type=float, help=f"About how long; default {MINUTES}, or {SHORT_MINUTES} for --short.")
@click.option("--short", is_flag=True, help="The slice that every change is tried with.")
@click.option("--seed", default=0, show_default=True, help="First seed; all chance comes from it.")
@click.option("--only", multiple=True, type=click.Choice(list(PARTS)), help="These parts alone.")
@click.option("--write", is_flag=True, help="Renew the table in README.md and docs/proof.md.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(minutes: float | None, short: bool, seed: int, only: tuple[str, ...], write: bool, output: str) -> None:  # noqa: FBT001 - click's
    """Try to make lakesink lose a row or count one twice. Exit code 1: something is broken."""
    logging.disable(logging.CRITICAL)
    minutes = minutes or (SHORT_MINUTES if short else MINUTES)
    started = time.monotonic()
    outcomes: dict[str, Outcome] = {}
    with progress() as say:
        for name in only or PARTS:
            share, part = PARTS[name]
            budget = Budget(minutes * 60 * share, seed, short, _named(name, say))
            outcomes[name] = part(budget)
            click.echo(_told(name, outcomes[name], time.monotonic() - started), err=True)
    document = _document(outcomes, (time.monotonic() - started) / 60)
    click.echo(json.dumps(document, indent=2) if output == "json" else as_text(document["table"]))
    if write:
        _write(document)
    sys.exit(1 if any(outcome.broken for outcome in outcomes.values()) else 0)


def _named(name: str, say: Callable[[str], None]) -> Callable[[str], None]:
    return lambda what: say(f"{name}: {what}")


def _told(name: str, outcome: Outcome, seconds: float) -> str:
    lines = [f"{name}: {'BROKEN' if outcome.broken else 'well'} (after {seconds:.0f} s)"]
    lines += [f"  BROKEN {what}" for what in outcome.broken[:20]]
    lines += [f"  not run: {what}" for what in outcome.missing]
    return "\n".join(lines)


def _document(outcomes: dict[str, Outcome], minutes: float) -> dict[str, Any]:
    broken = sum(len(outcome.broken) for outcome in outcomes.values())
    table = [line for outcome in outcomes.values() for line in outcome.lines]
    table += [("not run", what) for outcome in outcomes.values() for what in outcome.missing]
    return {
        "commit": _git("rev-parse", "--short=12", "HEAD") + ("+" if _git("status", "--porcelain", "-uno") else ""),
        "minutes": round(minutes),
        "machine": f"{os.cpu_count()} processors, Python {platform.python_version()}, PySpark {version('pyspark')},"
        f" PyIceberg {version('pyiceberg')}",
        "table": [*table, ("promises broken", f"{broken:,}")],
        "parts": {name: outcome.document for name, outcome in outcomes.items()},
    }


def _write(document: dict[str, Any]) -> None:
    kept = {name: document[name] for name in ("commit", "minutes", "machine", "table")}
    FIGURES.write_text(json.dumps(kept, indent=2) + "\n")
    for page in PAGES:
        page.write_text(renewed(page.read_text(), kept))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
