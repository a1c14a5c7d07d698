"""`python -m proof.simulator`: many seeds, or one with its story."""

import json
import logging
import sys
from functools import partial
from typing import TextIO

import click

from lakesink_tools.cli.output import progress
from proof.simulator.changing import draw_changes, draw_features
from proof.simulator.run import Failure, Simulated, run
from proof.simulator.scenario import draw
from proof.simulator.simulate import Report, simulate


@click.command()
@click.option("--first", default=0, show_default=True, help="First seed.")
@click.option("--seeds", default=20_000, show_default=True, help="How many seeds.")
@click.option("--seed", type=int, help="Only this one, with its story.")
@click.option(
    "--changes",
    "kind",
    flag_value="changes",
    help="Streams that replace and delete rows by key, instead of those that append.",
)
@click.option(
    "--features",
    "kind",
    flag_value="features",
    help="Documents with such changes: they bring columns, are put aside, logged and replayed.",
)
@click.option("--minutes", type=float, help="Begin no new seeds after that time.")
@click.option("--reports", type=click.File("a", lazy=False), help="Add what each seed came to, a line of JSON.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(
    *,
    first: int,
    seeds: int,
    seed: int | None,
    kind: str | None,
    minutes: float | None,
    reports: TextIO | None,
    output: str,
) -> None:
    """Run the shipped code in simulated worlds, and judge what became of every row."""
    drawn = {None: draw, "changes": draw_changes, "features": draw_features}[kind]
    if seed is not None:
        report = simulate(seed, drawn)
        click.echo("\n".join([*report.story, *map(str, report.broken)]))
        click.echo(
            f"seed {seed}: {'broken' if report.broken else 'well'}, {report.batches} batches, {report.rows} rows"
        )
        sys.exit(1 if report.broken else 0)
    seconds = None if minutes is None else 60 * minutes
    with progress() as say:
        result = run(first, seeds, seconds, say, drawn=drawn, each=partial(_write, reports))
    click.echo(json.dumps(result.to_json(), indent=2) if output == "json" else as_text(result))
    sys.exit(0 if result.well else 1)


def _write(reports: TextIO | None, report: Report) -> None:
    if reports is not None:
        print(json.dumps(report.to_json()), file=reports, flush=True)


def as_text(result: Simulated) -> str:
    """What the seeds came to, for people."""
    lines = [
        f"{result.seeds:,} seeds from {result.first} in {result.seconds:.0f} s: {result.seeds_per_second:.0f} a second",
        f"{result.batches:,} batches in the tables at the end, {result.foreign_commits:,} foreign commits",
        f"{result.unknown:,} commits had an answer that said nothing; {result.unknown_landed:,} of them had landed",
        f"rows: {result.rows:,} expected, {result.lost:,} lost, {result.doubled:,} doubled",
        f"{result.letters:,} rows were put aside; {result.evolutions:,} commits of batches changed the schema",
        "faults: " + ", ".join(f"{count:,} {fault}" for fault, count in result.faults.most_common()),
        "and: " + ", ".join(f"{count:,} {deed}" for deed, count in result.done.most_common()),
        "changes by key: " + (", ".join(f"{count:,} {kind}" for kind, count in result.changes.most_common()) or "none"),
        "outcomes: " + ", ".join(f"{count:,} {outcome}" for outcome, count in result.outcomes.most_common()),
    ]
    lines += [line for failure in sorted(result.failures, key=_by_length)[:3] for line in _told(failure)]
    if result.failures:
        lines.append(
            f"{len(result.failures)} seeds broke a promise. Next: python -m proof.simulator --seed <one of them>"
        )
    return "\n".join(lines)


def _by_length(failure: Failure) -> int:
    return len(failure.story)


def _told(failure: Failure) -> list[str]:
    return ["", f"seed {failure.seed}:", *failure.story, *failure.broken]


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # lakesink logs each fault that is injected
    main()
