"""Rows a second beside Iceberg's sink: W1 with 13 columns and W2, as `make bench` has them, with goals of their own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks import throughput
from benchmarks.result import Goal, Ratio, Result
from benchmarks.sinks import ICEBERG, LAKESINK

KEYS = {"W1": "W1/13", "W2": "W2/all"}
"""The workloads by the names that they have here."""
EVERY_TYPED_RUN, DOCUMENTS = 1.25, 2.2
ROUNDS, SHORT_ROUNDS = 5, 1
SHORT_SCALE = 0.05


def measure(key: str, folder: Path, say: Callable[[str], None], *, short: bool = False) -> Result:
    """Run lakesink and Iceberg's sink in turn."""
    [work] = (one for one in throughput.workloads(SHORT_SCALE if short else 1) if one.key == KEYS[key])
    work = replace(work, sinks=(LAKESINK, ICEBERG))
    runs = throughput.runs_of(work, folder, say, SHORT_ROUNDS if short else ROUNDS)
    seconds = {name: [run.usage.seconds for run in found] for name, found in runs.items()}
    ratio = Ratio.of(seconds[ICEBERG.name], seconds[LAKESINK.name])
    return replace(throughput.compare(work, runs), key=key, goals=(goal_of(key, work.rows, ratio),), raw=[])


def goal_of(key: str, rows: int, ratio: Ratio) -> Goal:
    """The slowest of all runs counts for typed rows, the median for documents."""
    if key == "W1":
        return Goal(
            f"{rows:,} typed rows, the slowest run against Iceberg", EVERY_TYPED_RUN, ratio.least, at_least=True
        )
    return Goal(f"{rows:,} JSON documents against Iceberg", DOCUMENTS, ratio.median, at_least=True)
