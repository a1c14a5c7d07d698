"""Where the time of one micro-batch goes, step by step, beside a sink that writes nothing and Iceberg's own.

Spark's progress tells of what it does around a sink; what a batch function does is timed from outside, see
`benchmarks.steps`. All figures are medians, so the parts do not quite come to the whole: the rest is what is missing.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.fall import ADD_BATCH, REST, WATERFALL, around, within
from benchmarks.history import BATCH_ROWS, WARM_UP, rows_in, tiny_batches
from benchmarks.long_table import make_long_tables
from benchmarks.oracle import files_fingerprint
from benchmarks.pieces import Pieces, create
from benchmarks.result import Cell, Result
from benchmarks.session import CATALOG, catalog_properties, iceberg_conf, session
from benchmarks.sinks import ICEBERG, LAKESINK, NOOP, Sink, Target
from benchmarks.steps import STEPS
from benchmarks.stopwatch import Stopwatch, timing
from lakesink_catalog.connect.catalog import connect

BATCHES = 20
"""Of one stream, its first ones among them."""
SNAPSHOTS = 100
"""That the table of the tiny batches has before."""
PIECE_ROWS = 200_000
SINKS = (LAKESINK, NOOP, ICEBERG)
_ORDERS = (SINKS, SINKS, tuple(reversed(SINKS)))
"""The first round only warms what the streams share; in the others the order turns: a session gets faster with age."""


@dataclass(slots=True)
class Stream:
    """What one sink's batches came to.

    Attributes:
        sink: Its name.
        progress: Spark's milliseconds by their names, of every batch.
        laps: The batch function's by step, of every batch; empty for a sink of the JVM.
    """

    sink: str
    progress: list[Mapping[str, float]] = field(default_factory=list)
    laps: list[Mapping[str, float]] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """Medians, and every batch's `ADD_BATCH`."""
        add_batch = [one[ADD_BATCH] for one in self.progress]
        spark, steps = medians(self.progress), medians(self.laps)
        return {"sink": self.sink, "spark": spark, "steps": steps, "addBatch": add_batch}


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of batch.

    Attributes:
        title: In words.
        streams: Medians of each sink, see `Stream.told`.
    """

    title: str
    streams: list[dict[str, Any]]


Run = Callable[[Sink, Target], list[Any]]
"""Runs one stream of `BATCHES`, and gives Spark's progress of each."""


def measure(folder: Path, say: Callable[[str], None]) -> Result:
    """Tiny batches, which the driver writes, then such as go through tasks."""
    (folder / "warehouse").mkdir(parents=True)
    spark = session(iceberg_conf(folder))
    tiny = f"{BATCH_ROWS} rows a batch, which the driver writes"
    found = [Load(tiny, _streams(_tiny(spark, folder), folder, tiny, say))]
    tasks = f"{PIECE_ROWS:,} rows a batch, which tasks write"
    found.append(Load(tasks, _streams(_tasks(spark, folder), folder, tasks, say)))
    spark.stop()
    return report(found)


def report(loads: Sequence[Load]) -> Result:
    """A line for every part of a micro-batch, lakesink's own among them."""
    sinks = tuple(stream["sink"] for stream in loads[0].streams)
    rows = [row for load in loads for row in _rows(load)]
    heads = ("batch", "part, ms", *sinks)
    return Result(WATERFALL, "one micro-batch, step by step", heads, tuple(rows), raw=list(loads))


def medians(batches: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of every part that some batch has; where one lacks it, it took no time. Parts stay in the order of a batch."""
    names = dict.fromkeys(name for one in sorted(batches, key=len, reverse=True) for name in one)
    return {name: round(statistics.median(one.get(name, 0.0) for one in batches), 3) for name in names}


def _rows(load: Load) -> Iterator[tuple[Cell, ...]]:
    falls = [around(stream["spark"]) for stream in load.streams]
    for parts in zip(*falls, strict=True):
        yield (load.title, parts[0].name, *(f"{part.milliseconds:.1f}" for part in parts))
        if parts[0].name == ADD_BATCH:
            yield from _steps(load)


def _steps(load: Load) -> Iterator[tuple[Cell, ...]]:
    timed = [
        {part.name: part.milliseconds for part in within(stream["spark"], stream["steps"])} if stream["steps"] else {}
        for stream in load.streams
    ]
    names = [name for name in dict.fromkeys(name for steps in timed for name in steps) if name != REST]
    for name in (*names, REST):
        yield (load.title, f"- {name}", *(f"{steps[name]:.1f}" if name in steps else "" for steps in timed))


def _streams(run: Run, folder: Path, title: str, say: Callable[[str], None]) -> list[dict[str, Any]]:
    found = {sink.name: Stream(sink.name) for sink in SINKS}
    for turn, sinks in enumerate(_ORDERS):
        for sink in sinks:
            name = f"{run.__name__}_{turn}_{SINKS.index(sink)}"
            target = Target(folder / name, f"bench.{name}", catalog_properties(folder), {"sink_id": name})
            stopwatch = Stopwatch()
            with timing(stopwatch, STEPS):
                progress = run(sink, target)
            if turn:
                _take(found[sink.name], progress, stopwatch)
    for stream in found.values():
        say(f"{WATERFALL}: {title}: {stream.sink} {statistics.median(one[ADD_BATCH] for one in stream.progress)} ms")
    return [stream.told() for stream in found.values()]


def _take(stream: Stream, progress: Sequence[Any], stopwatch: Stopwatch) -> None:
    """Batches after the first few; the checkpoint is new, so that a batch's number is its place."""
    for one in progress[WARM_UP:]:
        stream.progress.append(one["durationMs"])
        if stopwatch.batches:
            stream.laps.append(stopwatch.batches[one["batchId"]])


def _tiny(spark: SparkSession, folder: Path) -> Run:
    table = f"bench.tiny_{SNAPSHOTS}"
    make_long_tables(connect(CATALOG, catalog_properties(folder)), {SNAPSHOTS: table})

    def tiny(sink: Sink, target: Target) -> list[Any]:
        shared = replace(target, table=table)
        before = rows_in(shared)
        progress = tiny_batches(spark, sink, shared, BATCHES)
        added = rows_in(shared) - before
        assert sink is NOOP or added >= len(progress) * BATCH_ROWS, (sink.name, added)
        return progress

    return tiny


def _tasks(spark: SparkSession, folder: Path) -> Run:
    pieces = Pieces.make(spark, folder / "content", PIECE_ROWS)

    def tasks(sink: Sink, target: Target) -> list[Any]:
        rows = _put(spark, pieces, target.folder / "incoming")
        create(target, rows)
        query = sink.start(sink.writer(rows, target).trigger(availableNow=True), target)
        query.awaitTermination()
        if sink is not NOOP:
            pieces.expected(range(BATCHES)).check(sink.name, files_fingerprint(target.data_files()))
        return [one for one in query.recentProgress if one["numInputRows"]]

    return tasks


def _put(spark: SparkSession, pieces: Pieces, incoming: Path) -> DataFrame:
    incoming.mkdir(parents=True)
    for number in range(BATCHES):
        pieces.put(incoming, number)
    return pieces.stream(spark, incoming, 1)
