"""Seconds of one `lakesink audit` of a table with a long history, each run in a process of its own, on local disk."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from benchmarks.long_table import TABLE, make_long_table
from lakesink_catalog.connect.catalog import connect

GOAL_SECONDS = 10.0


def audit_seconds(environment: dict[str, str], *options: str) -> tuple[float, float]:
    """Wall-clock and processor seconds of the whole command, Python's start and imports among them."""
    started, before = time.perf_counter(), os.times()
    command = [sys.executable, "-c", "from lakesink.cli.main import main; main()", "audit", TABLE, "--output", "json"]
    done = subprocess.run([*command, *options], capture_output=True, env=os.environ | environment, check=True)
    assert json.loads(done.stdout)["well"] is True
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - started, used


@click.command()
@click.option("--batches", default=10_000, show_default=True, help="How long the history is.")
@click.option("--runs", default=3, show_default=True, help="Runs behind each median.")
def main(batches: int, runs: int) -> None:
    """Make the table, audit it again and again, and print the medians."""
    with tempfile.TemporaryDirectory() as folder:
        uri, warehouse = f"sqlite:///{Path(folder) / 'catalog.db'}", f"file://{folder}"
        started = time.perf_counter()
        make_long_table(connect("bench", {"type": "sql", "uri": uri, "warehouse": warehouse}), batches)
        print(f"{batches:,} batches made in {time.perf_counter() - started:.0f} s")
        names = {"TYPE": "sql", "URI": uri, "WAREHOUSE": warehouse}
        environment = {f"PYICEBERG_CATALOG__BENCH__{name}": value for name, value in names.items()}
        for title, options in (("sizes and footers", ()), ("sizes alone", ("--skip-footers",))):
            seconds = [audit_seconds(environment, "--catalog", "bench", *options) for _ in range(runs)]
            wall, used = (statistics.median(column) for column in zip(*seconds, strict=True))
            print(f"audit, {title}: median {wall:.1f} s, {used:.1f} s of processor  goal <= {GOAL_SECONDS:.0f}")


if __name__ == "__main__":
    main()
