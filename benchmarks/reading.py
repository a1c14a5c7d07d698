"""W16: a table read as a stream, beside Iceberg's own streaming reader of Spark, in turn and in one session.

Both read all that is there into nothing, from a new checkpoint each time. The rows that they give are compared first.
The micro-batch is judged, and the whole run beside it: a source in Python begins with a Python process of its own.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.oracle import WrongRows
from benchmarks.result import Goal, Ratio, Result
from benchmarks.session import CATALOG, catalog_properties, iceberg_conf, session
from benchmarks.upserts import write_rows
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.spark.source.data_source import LakesinkDataSource
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.identity import SinkKey, stream_batch
from lakesink_protocol.votes import Votes

ROWS = 8_000_000
BATCHES = 16
ROUNDS = 5
LAKESINK, ICEBERG = "lakesink", "Iceberg's reader"
TABLE = "bench.read"
_DIGEST = ("count(*)", "count(DISTINCT id)", "sum(CAST(xxhash64(*) AS DECIMAL(38, 0)))")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
    """How long a query took from its start to its end, and its micro-batch of it."""

    seconds: float
    batch_seconds: float


def measure(folder: Path, say: Say, scale: float = 1.0) -> Result:
    """Read `ROWS` times `scale` rows by both, `ROUNDS` times each."""
    (folder / "warehouse").mkdir(parents=True)
    rows = int(ROWS * scale)
    write(folder, rows)
    spark = session(iceberg_conf(folder))
    spark.dataSource.register(LakesinkDataSource)
    readers = {LAKESINK: by_lakesink(spark, folder), ICEBERG: by_iceberg(spark)}
    check(spark, readers, folder)
    found: dict[str, list[Run]] = {name: [] for name in readers}
    for number in range(ROUNDS):
        for name in readers if number % 2 else reversed(readers):
            found[name].append(run(readers[name], folder / f"{name} {number}"))
        say(
            f"W16, round {number}: {found[LAKESINK][-1].batch_seconds:.2f} s, {found[ICEBERG][-1].batch_seconds:.2f} s"
            " by Iceberg's reader"
        )
    spark.stop()
    return report(found, rows)


def write(folder: Path, rows: int) -> None:
    """A table of batches, each of two files, as a stream leaves it."""
    catalog = connect(CATALOG, catalog_properties(folder))
    each = rows // BATCHES
    for number in range(BATCHES):
        path = folder / "batch.parquet"
        write_rows(path, f"SELECT range AS id FROM range({number * each}, {(number + 1) * each})", 0)
        batches = pq.read_table(path).to_batches()
        schema = batches[0].schema
        if number == 0:
            create_table(catalog, TABLE, schema)
        settings = Settings.parse({"sink_id": "bench", "checkpoint": "/nowhere"})
        sink = IcebergSink(TABLE, SinkKey("bench"), lambda: catalog, settings, schema)
        parts = batches[::2], batches[1::2]
        run_batch(
            stream_batch(number, "bench", start=[number], end=[number + 1]),
            [sink],
            lambda writers, parts=parts: Votes.in_order(  # type: ignore[misc] # the parts of this batch
                {
                    name: [one.write(task, iter(part)) for task, part in enumerate(parts)]
                    for name, one in writers.items()
                }
            ),
        )


def by_lakesink(spark: SparkSession, folder: Path) -> DataFrame:
    """The stream of the table's batches."""
    of_catalog = {f"catalog.{name}": value for name, value in catalog_properties(folder).items()}
    options = {"table": TABLE, "catalog": CATALOG, **of_catalog}
    return spark.readStream.format("lakesink").options(**options).load()


def by_iceberg(spark: SparkSession) -> DataFrame:
    """The stream of the table's snapshots."""
    return spark.readStream.format("iceberg").load(f"{CATALOG}.{TABLE}")


def check(spark: SparkSession, readers: Mapping[str, DataFrame], folder: Path) -> None:
    """Both give the rows that the table has."""
    found: dict[str, object] = {"table": spark.table(f"{CATALOG}.{TABLE}").selectExpr(*_DIGEST).first()}
    for name, rows in readers.items():
        digest: list[object] = []

        def keep(batch: DataFrame, _: int, digest: list[object] = digest) -> None:
            digest.append(batch.selectExpr(*_DIGEST).first())

        writer = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / f"check of {name}"))
        writer.trigger(availableNow=True).start().awaitTermination()
        [found[name]] = digest
    if len(set(found.values())) != 1:
        raise WrongRows(f"{found}")


def run(rows: DataFrame, checkpoint: Path) -> Run:
    """A reader takes all that is there, in one micro-batch."""
    started = time.monotonic()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    whole = time.monotonic() - started
    [took] = [one["durationMs"]["triggerExecution"] for one in query.recentProgress if one["numInputRows"]]
    return Run(whole, took / 1000)


def report(found: Mapping[str, Sequence[Run]], rows: int) -> Result:
    """Medians, and how many times as fast lakesink reads."""
    batches = {name: [one.batch_seconds for one in runs] for name, runs in found.items()}
    lines = []
    for name, runs in found.items():
        median, whole = statistics.median(batches[name]), statistics.median(one.seconds for one in runs)
        lines.append((name, f"{median:.2f}", f"{int(rows / median):,}", f"{whole:.2f}"))
    ratio = Ratio.of(batches[ICEBERG], batches[LAKESINK])
    return Result(
        "W16",
        f"{rows:,} rows of 8 columns in {BATCHES} batches, read as a stream",
        ("reader", "seconds of the micro-batch", "rows a second", "seconds with the start"),
        tuple(lines),
        (Goal("W16, rows a second against Iceberg's reader", 1.0, ratio.median, at_least=True),),
        raw={name: [[one.seconds, one.batch_seconds] for one in runs] for name, runs in found.items()},
        rounds=ROUNDS,
    )
