"""`python -m proof`: all parts of the proof, and one table of what they came to."""

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from lakesink_tools.cli.output import progress
from proof.outcome import Budget, Outcome
from proof.page import GENERATED, as_markdown, as_text, highlights, together
from proof.parts import PARTS, SEEDED
from proof.provenance import PRODUCT, ROOT, commit, machine

DOCS = ROOT / "docs"
FIGURES = DOCS / "data/proof.json"
PAGES = {ROOT / "README.md": highlights, DOCS / "evidence/proof.md": as_markdown}
"""What each page shows of the figures."""
MINUTES = 40
SHORT_MINUTES = 4


@click.command()
@click.option("--minutes", type=float, help=f"About how long; default {MINUTES}, or {SHORT_MINUTES} for --short.")
@click.option("--short", is_flag=True, help="The slice that every change is tried with.")
@click.option("--seed", default=0, show_default=True, help="First seed; all chance comes from it.")
@click.option("--only", multiple=True, type=click.Choice(list(PARTS)), help="These parts alone.")
@click.option("--slice", "cut", metavar="K/N", callback=lambda *given: slice_of(given[-1]), help="One of N slices.")
@click.option("--write", is_flag=True, help="Renew the table and the pages of these parts.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(
    *,
    minutes: float | None,
    short: bool,
    seed: int,
    only: tuple[str, ...],
    cut: tuple[Sequence[str], tuple[int, int]],
    write: bool,
    output: str,
) -> None:
    """Try to make lakesink lose a row or count one twice. Exit code 1: something is broken."""
    logging.disable(logging.CRITICAL)
    minutes = minutes or (SHORT_MINUTES if short else MINUTES)
    document: dict[str, Any] = {"machine": machine(), "parts": {}}
    pages: dict[str, str] = {}
    with progress() as say:
        for name in only or cut[0]:
            of_time, part = PARTS[name]
            share = cut[1] if name in SEEDED else (1, 1)
            started = time.monotonic()
            outcome = part(Budget(minutes * 60 * of_time / share[1], seed, short, _named(name, say), share))
            document["parts"][name] = _told(outcome, round(time.monotonic() - started))
            click.echo(_spoken(name, outcome), err=True)
            pages.update(outcome.pages)
    click.echo(json.dumps(document, indent=2) if output == "json" else as_text(document))
    if write:
        _write(document, pages)
    sys.exit(1 if any(part["broken"] for part in document["parts"].values()) else 0)


def slice_of(wanted: str | None) -> tuple[Sequence[str], tuple[int, int]]:
    """The names of the parts of a slice, such as 2/3, and its share of the seeds; all without one.

    Whole parts go by turns. Slices beyond these share the seeds; if there are no such slices, all do.
    """
    number, slices = map(int, (wanted or "1/1").split("/"))
    whole = [name for name in PARTS if name not in SEEDED]
    without = len(whole) if slices > len(whole) else 0
    names = {*whole[number - 1 :: slices], *(SEEDED if number > without else ())}
    return [name for name in PARTS if name in names], (number - without, slices - without)


def _named(name: str, say: Callable[[str], None]) -> Callable[[str], None]:
    return lambda what: say(f"{name}: {what}")


def _spoken(name: str, outcome: Outcome) -> str:
    lines = [f"{name}: {'BROKEN' if outcome.broken else 'well'}"]
    lines += [f"  BROKEN {what}" for what in outcome.broken[:20]]
    lines += [f"  not run: {what}" for what in outcome.missing]
    return "\n".join(lines)


def _told(outcome: Outcome, seconds: int) -> dict[str, Any]:
    return {
        "commit": commit(*PRODUCT),
        "seconds": seconds,
        "lines": [*outcome.lines, *(("not run", what) for what in outcome.missing)],
        "broken": len(outcome.broken),
        "document": outcome.document,
    }


def _write(document: dict[str, Any], pages: Mapping[str, str]) -> None:
    """Parts that were not run now keep what their own last run came to."""
    brief = {name: {**part, "document": None} for name, part in document["parts"].items()}
    known = together(json.loads(FIGURES.read_text()), {**document, "parts": brief}, PARTS)
    FIGURES.write_text(json.dumps(known, indent=2) + "\n")
    for page, generated in PAGES.items():
        page.write_text(GENERATED.renewed(page.read_text(), generated(known)))
    for name, text in pages.items():
        (DOCS / "evidence" / name).write_text(text)


if __name__ == "__main__":
    main()
