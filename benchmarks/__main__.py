"""`make bench`: lakesink and its peers, in turn, in one run; every result is checked before its time is believed."""

import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from benchmarks.result import Result
from benchmarks.throughput import ROUNDS
from benchmarks.works import WORKS, Setting, Work
from lakesink_protocol.suggest import did_you_mean
from lakesink_tools.cli.output import progress
from proof.provenance import machine


def asked(only: str | None) -> list[Work]:
    """The works that somebody names, or all that run unnamed.

    Raises:
        click.BadParameter: There is no work of that name.
    """
    if only is None:
        return [work for work in WORKS.values() if not work.by_name]
    chosen = []
    for name in only.split(","):
        of_group = [work for work in WORKS.values() if work.name.startswith(f"{name}/")]
        unnamed = [work for work in of_group if not work.by_name]
        found = [WORKS[name]] if name in WORKS else unnamed or of_group
        if not found:
            raise click.BadParameter(f"there is no work {name!r}. {did_you_mean(name, WORKS)}")
        chosen += found
    return chosen


def set_by(told: Sequence[str], works: Sequence[Work]) -> dict[str, Setting]:
    """Settings by name, such as ``rounds=9``.

    Raises:
        click.BadParameter: None of the works has this setting, or it is no number.
    """
    found: dict[str, Setting] = {}
    known = {name for work in works for name in work.settings}
    for name, _, value in (one.partition("=") for one in told):
        if name not in known:
            raise click.BadParameter(f"there is no setting {name!r}. {did_you_mean(name, sorted(known))}")
        try:
            found[name] = float(value) if "." in value else int(value)
        except ValueError:
            raise click.BadParameter(f"{name} is a number, not {value!r}") from None
    return found


def results(
    folder: Path, works: Sequence[Work], say: Callable[[str], None], settings: Mapping[str, Setting]
) -> Iterator[tuple[Work, Result]]:
    """One result after the other; of a work that fails the reason, and the others go on."""
    for work in works:
        yield work, work.measure(folder, say, settings)
        shutil.rmtree(folder / work.name.replace("/", "-"), ignore_errors=True)


def show(result: Result) -> str:
    """A result as text."""
    table = [result.heads, *(tuple(map(str, row)) for row in result.rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(result.heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([f"\n{result.key}: {result.title}", *lines, *map(str, result.goals)])


def ending(found: Sequence[Result]) -> str:
    """In a sentence, how it went."""
    failed = [result.key for result in found if result.failed]
    if failed:
        return f"Not measured: {', '.join(failed)}."
    goals = [goal for result in found for goal in result.goals]
    missed = sum(not goal.reached for goal in goals)
    if not goals:
        return "No goal was set for this."
    return f"{missed} of {len(goals)} goals not reached." if missed else f"All {len(goals)} goals reached."


def listed() -> str:
    """Every work: what it measures, what it needs, and what can be set."""
    return "\n".join(
        f"{work.name:18}{work.what}"
        f" [{'; '.join(filter(None, (work.needs, *(f'{name}={value:g}' for name, value in work.settings.items()))))}]"
        for work in WORKS.values()
    )


@click.command()
@click.option("--only", help="Works with a comma between: W1, W2/all, scale, ... Some run only so.")
@click.option("--set", "told", multiple=True, metavar="NAME=NUMBER", help="Of works that have it: rounds=9, short=1.")
@click.option("--list", "listing", is_flag=True, help="Say what there is: what it measures, needs, and can be set.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--write", is_flag=True, help="Write what was found into its page, with its pictures and data.")
def main(*, only: str | None, told: tuple[str, ...], listing: bool, output: str, write: bool) -> None:
    """Measure, judge, and say where lakesink is slower."""
    logging.getLogger("lakesink").setLevel(logging.ERROR)
    works = asked(only)
    settings = set_by(told, works)
    if listing:
        click.echo(listed())
        return
    folder = Path(tempfile.mkdtemp(prefix="lakesink-bench-"))
    found = []
    try:
        with progress() as say:
            for work, result in results(folder, works, say, settings):
                found.append(result)
                if output == "text":
                    print(show(result), flush=True)
                if write and work.page is not None and not result.failed:
                    work.page.write({"machine": work.page.machine(), **document([result], settings)})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if output == "json":
        print(json.dumps({"machine": machine(), "settings": settings, **document(found, settings)}))
    else:
        print(f"\n{ending(found)}")
        print("Next: docs/evidence/benchmarks.md has earlier figures; `--only W1 --set rounds=9` looks closer.")
    raise SystemExit(2 if any(result.failed for result in found) else 0)


def document(found: Sequence[Result], settings: Mapping[str, Setting]) -> dict[str, object]:
    """What was found, as JSON has it."""
    short = bool(settings.get("short"))
    return {
        "rounds": settings.get("rounds", ROUNDS),
        "results": [result.to_json() | {"short": short} for result in found],
    }


if __name__ == "__main__":
    main()
