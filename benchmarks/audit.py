"""What `lakesink` costs a reader of a long history: seconds and peak memory of each command, in a process of its own.

Python's start and imports are in every figure; their part is measured by the first line, a table of one batch.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.long_table import make_long_tables
from lakesink_catalog.connect.catalog import connect

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "status": ("status",),
    "log": ("log",),
    "as-of": ("as-of", "--batch", "0"),
    "audit --skip-footers": ("audit", "--skip-footers"),
    "audit": ("audit",),
}
LENGTHS = (1_000, 30_000, 50_000)
_RUN = """
import atexit, re, sys
from pathlib import Path
from lakesink_tools.cli.main import main

def tell():
    peak = re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]
    print("peak KiB", peak, end="", file=sys.stderr)

atexit.register(tell)
main()
"""
"""The process prints its own peak: what its parent could ask for is the larger of both their peaks."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run of a command."""

    seconds: float
    processor_seconds: float
    peak_mib: float


def cost_of(command: Sequence[str], table: str, environment: Mapping[str, str]) -> Cost:
    """Run a command on a table that is as it should be."""
    name, *options = command
    given = [sys.executable, "-c", _RUN, name, table, *options, "--catalog", "bench", "--output", "json"]
    started, before = time.perf_counter(), os.times()
    done = subprocess.run(given, capture_output=True, env=os.environ | environment, check=True)
    seconds, after = time.perf_counter() - started, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(seconds, used, int(done.stderr.rpartition(b"peak KiB ")[2]) / 1024)


def environment_of(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The catalog's properties, and the same for a process."""
    properties = {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": f"file://{folder}"}
    return properties, {f"PYICEBERG_CATALOG__BENCH__{name.upper()}": value for name, value in properties.items()}


def _measure(folder: Path, lengths: Sequence[int], commands: Sequence[str], runs: int) -> None:
    properties, environment = environment_of(folder)
    tables = {length: f"bench.h{length}" for length in (1, *lengths)}
    if not (folder / "catalog.db").exists():
        started = time.perf_counter()
        make_long_tables(connect("bench", properties), tables)
        print(f"{max(lengths):,} batches made in {time.perf_counter() - started:.0f} s")
    for length, table in tables.items():
        for command in commands:
            costs = [cost_of(COMMANDS[command], table, environment) for _ in range(runs)]
            wall, used, peak = (
                statistics.median(getattr(cost, part) for cost in costs)
                for part in ("seconds", "processor_seconds", "peak_mib")
            )
            print(f"{length:7,} batches, {command:21} {wall:6.2f} s, {used:6.2f} s of processor, {peak:4.0f} MiB")


@click.command()
@click.option("--batches", type=int, multiple=True, default=LENGTHS, show_default=True, help="Lengths of history.")
@click.option("--command", "commands", type=click.Choice(list(COMMANDS)), multiple=True, default=list(COMMANDS))
@click.option("--runs", default=3, show_default=True, help="Runs behind each median.")
@click.option("--folder", type=click.Path(path_type=Path), help="Keeps the tables here, and finds them here again.")
def main(batches: Sequence[int], commands: Sequence[str], runs: int, folder: Path | None) -> None:
    """Make the tables, run the commands again and again, and print the medians."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        _measure(folder.resolve(), batches, commands, runs)
        return
    with tempfile.TemporaryDirectory() as made:
        _measure(Path(made), batches, commands, runs)


if __name__ == "__main__":
    main()
