"""`make bench-scale`: how cost grows with partitions, files, snapshots and writers, judged by the goals of the page."""

import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

import click

from benchmarks.__main__ import Say, ending, or_failed, show
from benchmarks.result import Result
from benchmarks.scale import driver, history, merges, sources, speed, wide, writers
from benchmarks.scale.page import write_page
from lakesink_protocol.suggest import did_you_mean
from lakesink_tools.cli.output import progress
from proof.provenance import machine
from servers.jars import ICEBERG

PARTS: dict[str, Callable[..., Result]] = {
    driver.KEY: driver.measure,
    merges.KEY: merges.measure,
    writers.KEY: writers.measure,
    history.KEY: history.measure,
    sources.KEY: sources.measure,
    wide.KEY: wide.measure,
    **{key: partial(speed.measure, key) for key in speed.KEYS},
}
"""In the order in which they run: those with a JVM last, because it stays until the end."""


def asked(only: str | None) -> list[str]:
    """Keys of the parts that somebody names, or of all.

    Raises:
        click.BadParameter: There is no part of that name.
    """
    chosen = list(PARTS) if only is None else only.split(",")
    for name in chosen:
        if name not in PARTS:
            raise click.BadParameter(f"there is no part {name!r}. {did_you_mean(name, PARTS)}")
    return chosen


def results(folder: Path, keys: Sequence[str], say: Say, *, short: bool) -> Iterator[Result]:
    """One result after the other; of a part that fails the reason, and the others go on."""
    for key in keys:
        place = folder / key
        yield or_failed(key, partial(PARTS[key], place, say, short=short))
        shutil.rmtree(place, ignore_errors=True)


def versions() -> str:
    """This machine and what was measured on it, in words."""
    return f"{machine()}, PyArrow {version('pyarrow')}, DuckDB {version('duckdb')}, Iceberg {ICEBERG} for Spark"


@click.command()
@click.option(
    "--only", "keys", callback=lambda _, __, only: asked(only), help=f"With a comma between: {','.join(PARTS)}."
)
@click.option("--short", is_flag=True, help="Small sizes, in a few minutes: to see that the parts run.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--write", is_flag=True, help="Write docs/evidence/scale.md with its charts and data.")
def main(keys: list[str], output: str, *, short: bool, write: bool) -> None:
    """Measure, judge, and write what was found."""
    logging.getLogger("lakesink").setLevel(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="lakesink-scale-"))
    found = []
    try:
        with progress() as say:
            for result in results(folder, keys, say, short=short):
                found.append(result)
                if output == "text":
                    print(show(result), flush=True)
                if write and not result.failed:
                    write_page(_document([result], short=short))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(_document(found, short=short)) if output == "json" else f"\n{ending(found)}")
    raise SystemExit(2 if any(result.failed for result in found) else 0)


def _document(found: Sequence[Result], *, short: bool) -> dict[str, object]:
    told = [result.to_json() | {"short": short} for result in found]
    return {"machine": versions(), "rounds": 1, "results": told}


if __name__ == "__main__":
    main()
