"""W4: what a small commit costs as history grows: alone, as a tiny batch of a stream, and for whoever plans a query.

The long histories are made at once, by the code that commits; the commits that are measured are real ones on top.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.commit_latency import commit_once, fenced
from benchmarks.long_table import ROWS, make_long_tables
from benchmarks.result import Goal, Result, quantile
from benchmarks.session import CATALOG, catalog_properties, iceberg_conf, session
from benchmarks.sinks import ICEBERG, LAKESINK, Sink, Target
from lakesink_catalog.connect.catalog import connect

MARKS = (100, 1_000, 5_000, 10_000)
STREAMED = (100, 1_000, 10_000)
"""Snapshots at which streams are measured too."""
COMMITS = 40
BATCHES, WARM_UP = 45, 5
BATCH_ROWS = ROWS.num_rows
_PATIENCE_SECONDS = 180


@dataclass(frozen=True, slots=True)
class Mark:
    """What was found at one length of history; milliseconds.

    Attributes:
        snapshots: The length.
        metadata_mib: Size of the metadata file.
        commits: Of lakesink's commit loop alone.
        plan_pyiceberg: To plan a scan of the whole table.
        plan_spark: The same by Iceberg's Spark, metadata read anew.
        batches: Of tiny batches, Spark's ``addBatch``, by sink.
    """

    snapshots: int
    metadata_mib: float
    commits: Sequence[float]
    plan_pyiceberg: float
    plan_spark: float
    batches: dict[str, list[int]]


def measure(folder: Path, say: Callable[[str], None]) -> Result:
    """All marks, shortest history first."""
    (folder / "warehouse").mkdir(parents=True)
    properties = catalog_properties(folder)
    catalog = connect(CATALOG, properties)
    say(f"W4: making {MARKS[-1]:,} snapshots")
    make_long_tables(catalog, {mark: f"bench.history_{mark}" for mark in MARKS})
    spark = session(iceberg_conf(folder))
    found = []
    for mark in MARKS:
        table = f"bench.history_{mark}"
        say(f"W4: {mark:,} snapshots")
        size = Path(catalog.load_table(table).metadata_location.removeprefix("file://")).stat().st_size
        plans = _plan_by_pyiceberg(folder, table), _plan_by_spark(spark, table)
        batches = _streams(spark, folder, table) if mark in STREAMED else {}
        fence = fenced(connect(CATALOG, properties), table)
        commits = [commit_once(fence, number) for number in range(mark, mark + COMMITS)]
        found.append(Mark(mark, size / 1024**2, commits, *plans, batches))
    spark.stop()
    return report(found)


def report(marks: Sequence[Mark]) -> Result:
    """A row for every mark, and the goals judged by medians."""
    heads = (
        "snapshots", "metadata MiB", "commit ms p50/p95/p99", "addBatch ms, lakesink", "addBatch ms, Iceberg",
        "plan ms, PyIceberg", "plan ms, Spark",
    )  # fmt: skip
    streamed = [mark for mark in marks if mark.batches]
    goals = [
        Goal(
            f"W4, addBatch against Iceberg's sink at {mark.snapshots:,} snapshots",
            1.2 if mark.snapshots < 1_000 else 1.0,
            _median(mark, LAKESINK) / _median(mark, ICEBERG),
            at_least=False,
        )
        for mark in streamed
    ]
    flat = _median(streamed[-1], LAKESINK) / _median(streamed[0], LAKESINK)
    name = f"W4, addBatch at {streamed[-1].snapshots:,} snapshots over that at {streamed[0].snapshots:,}"
    goals.append(Goal(name, 1.5, flat, at_least=False))
    return Result(
        "W4/history", "small commits as history grows", heads, tuple(map(_row, marks)), tuple(goals), list(marks)
    )


def _row(mark: Mark) -> tuple[str | float | int, ...]:
    percentiles = "/".join(f"{quantile(mark.commits, percent):.0f}" for percent in (50, 95, 99))
    batches = [f"{_median(mark, sink):.0f}" if mark.batches else "" for sink in (LAKESINK, ICEBERG)]
    plans = round(mark.plan_pyiceberg), round(mark.plan_spark)
    return mark.snapshots, round(mark.metadata_mib, 1), percentiles, *batches, *plans


def _median(mark: Mark, sink: Sink) -> float:
    return float(statistics.median(mark.batches[sink.name]))


def _plan_by_pyiceberg(folder: Path, table: str) -> float:
    """By a catalog that has seen nothing yet."""
    catalog = connect(CATALOG, catalog_properties(folder))
    started = time.perf_counter()
    assert list(catalog.load_table(table).scan().plan_files())
    return (time.perf_counter() - started) * 1000


def _plan_by_spark(spark: SparkSession, table: str) -> float:
    """A count, which Iceberg answers from what it plans by, without reading data."""
    count = f"SELECT count(*) FROM {CATALOG}.{table}"
    spark.sql(count).collect()  # code that was not used yet is slow
    started = time.perf_counter()
    spark.sql(count).collect()
    return (time.perf_counter() - started) * 1000


def _streams(spark: SparkSession, folder: Path, table: str) -> dict[str, list[int]]:
    """Each sink's batches in two halves, in turned order: a session gets faster with its age."""
    found: dict[str, list[int]] = {LAKESINK.name: [], ICEBERG.name: []}
    for half, sinks in enumerate(((LAKESINK, ICEBERG), (ICEBERG, LAKESINK))):
        for sink in sinks:
            place = folder / f"{table}-{half}-{sink.name}"
            target = Target(place, table, catalog_properties(folder))
            found[sink.name] += _tiny_batches(spark, sink, target, half)
    return found


def _tiny_batches(spark: SparkSession, sink: Sink, target: Target, number: int) -> list[int]:
    """Milliseconds of every batch after the first few."""
    before = rows_in(target)
    progress = tiny_batches(spark, sink, replace(target, options={"sink_id": f"tiny-{number}"}), BATCHES)
    batches = (rows_in(target) - before) / BATCH_ROWS
    assert batches.is_integer(), "half a batch is in the table"
    assert len(progress) <= batches <= len(progress) + 1, (len(progress), batches)
    return [one["durationMs"]["addBatch"] for one in progress[WARM_UP:]]


def tiny_batches(spark: SparkSession, sink: Sink, target: Target, count: int) -> list[Any]:
    """Run a stream of batches of `BATCH_ROWS` until there are so many, and give Spark's progress of each."""
    query = sink.start(sink.writer(_numbers(spark), target).trigger(processingTime="0 seconds"), target)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while query.isActive and len(query.recentProgress) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    query.stop()  # waits for the end; what a sink says that is interrupted by it is no failure of a batch
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    assert len(progress) >= count - 1, query.exception()
    return progress


def _numbers(spark: SparkSession) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH_ROWS).option("numPartitions", 1)
    return source.load().selectExpr(
        "value as id", "concat('name ', value) as name", "timestamp as at", "value / 7 as price"
    )


def rows_in(target: Target) -> int:
    """Of the whole table, as its newest snapshot says."""
    snapshot = connect(CATALOG, target.properties).load_table(target.table).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return int(snapshot.summary["total-records"] or 0)
