"""W9: a small batch of a source with many partitions, as a topic of Kafka has them: what it takes, and its files."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession

from benchmarks.oracle import WrongRows
from benchmarks.pieces import create
from benchmarks.result import Goal, Result
from benchmarks.session import CATALOG, catalog_properties, iceberg_conf, session
from benchmarks.sinks import ICEBERG, LAKESINK, Sink, Target
from lakesink_catalog.connect.catalog import connect

PARTITIONS = {2: 12, 32: 9, 200: 6, 1000: 3}
"""Batches of a stream by the partitions of its source; the first two start the stream, and are not counted."""
ROUNDS = 2
WARM_UP = 2
ROWS = 20_000
MOST_TIMES_AS_LONG = 0.8
SINKS = (LAKESINK, ICEBERG)


@dataclass(frozen=True, slots=True)
class Batches:
    """What streams over one number of partitions came to: milliseconds of `addBatch`, and files of the same batches."""

    milliseconds: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)


Found = Mapping[tuple[int, str], Batches]
"""By partitions and sink."""


def measure(folder: Path, say: Callable[[str], None]) -> Result:
    """Streams of both sinks in turn, for each number of partitions."""
    return report(streamed(folder, say, PARTITIONS))


def streamed(folder: Path, say: Callable[[str], None], sizes: Mapping[int, int]) -> Found:
    """What the streams came to, by the batches of each number of partitions."""
    folder.mkdir()
    spark = session(iceberg_conf(folder))
    found: dict[tuple[int, str], Batches] = {}
    for partitions, batches in sizes.items():
        for number in range(ROUNDS):
            for sink in SINKS:
                target = Target(
                    folder / f"{partitions}-{number}-{len(found)}-{sink.name[:4]}",
                    f"bench.p{partitions}_{number}_{sink.name[:4].lower()}",
                    catalog_properties(folder),
                )
                one = found.setdefault((partitions, sink.name), Batches())
                _run(spark, sink, target, partitions, batches, one)
        told = {sink.name: statistics.median(found[partitions, sink.name].milliseconds) for sink in SINKS}
        say(f"W9: {partitions} partitions: {told}")
    spark.stop()
    return found


def _rows(spark: SparkSession, partitions: int) -> DataFrame:
    options = {"rowsPerBatch": ROWS, "numPartitions": partitions, "advanceMillisPerBatch": 1000}
    rows = spark.readStream.format("rate-micro-batch").options(**options).load()
    text = [f"concat('text ', value % {10 + number}) as text_{number}" for number in range(5)]
    numbers = [f"value * {number} as number_{number}" for number in range(6)]
    return rows.selectExpr("value as id", "timestamp as at", *text, *numbers)


def _run(spark: SparkSession, sink: Sink, target: Target, partitions: int, batches: int, found: Batches) -> None:
    rows = _rows(spark, partitions)
    create(target, rows)
    query = sink.start(sink.writer(rows, target), target)
    while query.isActive and (query.lastProgress is None or query.lastProgress["batchId"] < batches - 1):
        time.sleep(0.1)
    query.stop()
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    times = {one["batchId"]: one["durationMs"]["addBatch"] for one in query.recentProgress if one["numInputRows"]}
    _check(sink, target.data_files(), len(times))
    found.milliseconds.extend(times[number] for number in range(WARM_UP, batches))
    found.files.extend(_files_of_batches(target)[WARM_UP:batches])


def _files_of_batches(target: Target) -> list[int]:
    """Each batch is one snapshot."""
    table = connect(CATALOG, target.properties).load_table(target.table)
    summaries = [snapshot.summary for snapshot in table.metadata.snapshots]
    return [int(summary["added-data-files"] or 0) for summary in summaries if summary is not None]


def _check(sink: Sink, files: list[str], batches: int) -> None:
    """All rows of whole batches, each once; Spark may have stopped before it reported the last one."""
    query = "select count(*), count(distinct id), min(id), max(id) from read_parquet(?)"
    row = duckdb.execute(query, [files]).fetchone()
    assert row is not None
    rows, distinct, least, most = row
    if rows % ROWS or rows < batches * ROWS or (distinct, least, most) != (rows, 0, rows - 1):
        raise WrongRows(f"{sink.name}: {row} in {batches} batches")


def report(found: Found) -> Result:
    """Medians of `addBatch`, and how many times as long it takes as in Iceberg's sink."""
    rows, goals = [], []
    for partitions in dict.fromkeys(partitions for partitions, _ in found):
        ours, theirs = (found[partitions, sink.name] for sink in SINKS)
        mine, other = statistics.median(ours.milliseconds), statistics.median(theirs.milliseconds)
        rows.append((partitions, mine, other, round(mine / other, 2), max(ours.files), max(theirs.files)))
        goals.append(Goal(f"{partitions} partitions", MOST_TIMES_AS_LONG, mine / other, at_least=False))
    raw = {f"{partitions}/{name}": [one.milliseconds, one.files] for (partitions, name), one in found.items()}
    heads = ("partitions", "lakesink ms", "Iceberg ms", "times as long", "files a batch", "Iceberg's files a batch")
    return Result("W9", "a batch of 20,000 rows from many partitions", heads, tuple(rows), tuple(goals), raw=raw)
