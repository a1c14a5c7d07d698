"""Small batches of a source with many partitions, beside Iceberg's sink."""

import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.partitions import MOST_TIMES_AS_LONG, PARTITIONS, SINKS, Found, streamed
from benchmarks.result import Goal, Result
from benchmarks.scale.panel import Panel

KEY = "sources"
SHORT = {2: 5, 32: 5}
"""Batches by the partitions of the source, in a short run."""
FILES_JUSTIFIED = 1
"""20,000 rows are some 3 MB, and a file of less than 16 MiB is worth less than its task."""


def measure(folder: Path, say: Callable[[str], None], *, short: bool = False) -> Result:
    """Run the streams."""
    return report(streamed(folder, say, SHORT if short else PARTITIONS))


def report(found: Found) -> Result:
    """Medians of `addBatch` of both sinks; goals from 32 partitions on."""
    sizes = list(dict.fromkeys(partitions for partitions, _ in found))
    rows, goals = [], []
    for partitions in sizes:
        ours, theirs = (found[partitions, sink.name] for sink in SINKS)
        mine, other = statistics.median(ours.milliseconds), statistics.median(theirs.milliseconds)
        rows.append((partitions, mine, other, round(mine / other, 2), max(ours.files), max(theirs.files)))
        if partitions > min(sizes):
            name = f"{partitions:,} source partitions"
            goals += [
                Goal(f"{name}: addBatch against Iceberg's sink", MOST_TIMES_AS_LONG, mine / other, at_least=False),
                Goal(f"{name}: files a batch", FILES_JUSTIFIED, max(ours.files), at_least=False, unit=""),
            ]
    lines = {
        sink.name: [(size, statistics.median(found[size, sink.name].milliseconds)) for size in sizes] for sink in SINKS
    }
    heads = ("source partitions", "lakesink ms", "Iceberg ms", "times as long", "files a batch", "Iceberg's files")
    title = "batches of 20,000 rows by the partitions of their source"
    panels = [Panel("source partitions", "addBatch, ms", lines)]
    return Result(KEY, title, heads, tuple(rows), tuple(goals), panels)
