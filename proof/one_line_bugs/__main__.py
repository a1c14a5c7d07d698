"""``python -m proof.one_line_bugs``: draw bugs, run the fast tests against each, and list the survivors."""

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import click

from proof.one_line_bugs import survivors
from proof.one_line_bugs.covering import covering
from proof.one_line_bugs.draw import ROOMS, bugs_in, draw
from proof.one_line_bugs.fast_tests import ROOT
from proof.one_line_bugs.figures import Figures
from proof.one_line_bugs.forks import load_libraries
from proof.one_line_bugs.run import Runner

AT_ONCE = 2
NEXT = """\
Next, for each survivor: write a test that fails with it, in the folder of its room. If no test can see it, write its id
and the reason into {file} under [equivalent] (--write adds the ids under [open])."""


@click.command()
@click.option("--seed", help="Any text; the same text draws the same bugs.  [default: the commit]")
@click.option("--count", default=50, show_default=True, help="How many bugs.")
@click.option("--only", default="", help="Bugs whose file contains this.")
@click.option("--seconds", default=15.0, show_default=True, help="Processor seconds of tests for a bug.")
@click.option("--list", "only_list", is_flag=True, help="Print the bugs, and run nothing.")
@click.option("--write", is_flag=True, help="Write new survivors into the list, and leave out stale ones.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(*, seed: str | None, count: int, only: str, seconds: float, only_list: bool, write: bool, output: str) -> None:
    """Draw one-line bugs of the product, and see which no fast test kills. Exit code 1: something is not well."""
    seed = seed or subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    sources = _sources()
    bugs = bugs_in(sources)
    drawn = draw((bug for bug in bugs if only in bug.file), seed, count)
    if only_list or not drawn:
        click.echo("\n\n".join(f"{bug.id}\n{bug.diff}" for bug in drawn) or f"No bug is in a file with {only!r}.")
        return
    load_libraries()
    known = survivors.read()
    say = partial(click.echo, err=True)
    with tempfile.TemporaryDirectory(prefix="one-line-bugs-") as folder:
        tests = covering(sources, Path(folder), AT_ONCE, say)
        runner = Runner(tests, Path(folder), seconds, AT_ONCE)
        results = []
        to_run = [bug for bug in drawn if bug.id not in known.equivalent]
        for result in runner.run(to_run):
            say(str(result))
            results.append(result)
        unsound = runner.failing({one.killer for one in results} & tests.costs.keys())
    equivalent = [bug for bug in drawn if bug.id in known.equivalent]
    figures = Figures(seed, results, equivalent, known, known.stale(bug.id for bug in bugs), unsound)
    if write:
        survivors.write(known.renewed((one.bug.id for one in figures.new), figures.stale))
    click.echo(json.dumps(figures.to_json(), indent=2) if output == "json" else _text(figures))
    sys.exit(1 if figures.broken else 0)


def _sources() -> dict[str, str]:
    files = sorted(path for room in ROOMS for path in (ROOT / room).glob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text() for path in files}


def _text(figures: Figures) -> str:
    cpu, wall = (
        sum(getattr(one, name) for one in figures.results) / max(len(figures.results), 1) for name in ("cpu", "wall")
    )
    lines = [figures.table(), "", f"Seed {figures.seed}: {cpu:.1f} s of processor time and {wall:.1f} s for each bug."]
    for one in figures.new:
        lines += [
            "",
            one.bug.id,
            one.bug.diff,
            f"{one.ran} of the {one.covering} tests that run this line have passed.",
        ]
    lines += ["", *(f"NOT WELL: {what}" for what in figures.broken)]
    if figures.new:
        lines.append(NEXT.format(file=survivors.FILE.relative_to(ROOT)))
    return "\n".join(lines).rstrip()


if __name__ == "__main__":
    main()
