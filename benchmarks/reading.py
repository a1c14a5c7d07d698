"""W14: a table read as a stream, beside Iceberg's own streaming reader of Spark, in turn and in one session.

Both read all that is there into nothing, from a new checkpoint each time. The rows that they give are compared first.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.oracle import WrongRows
from benchmarks.result import Goal, Ratio, Result
from benchmarks.session import CATALOG, catalog_properties, iceberg_conf, session
from benchmarks.upserts import write_rows
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.sink import IcebergSink
from lakesink.spark.data_source import LakesinkDataSource
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.identity import SinkKey, SinkKind, stream_batch
from lakesink_protocol.votes import Votes

ROWS = 8_000_000
BATCHES = 16
ROUNDS = 5
LAKESINK, ICEBERG = "lakesink", "Iceberg's reader"
TABLE = "bench.read"
_DIGEST = ("count(*)", "count(DISTINCT id)", "sum(CAST(xxhash64(*) AS DECIMAL(38, 0)))")
Say = Callable[[str], None]


def measure(folder: Path, say: Say, scale: float = 1.0) -> Result:
    """Read `ROWS` times `scale` rows by both, `ROUNDS` times each."""
    (folder / "warehouse").mkdir(parents=True)
    rows = int(ROWS * scale)
    write(folder, rows)
    spark = session(iceberg_conf(folder))
    spark.dataSource.register(LakesinkDataSource)
    readers = {LAKESINK: by_lakesink(spark, folder), ICEBERG: by_iceberg(spark)}
    check(spark, readers, folder)
    found: dict[str, list[float]] = {name: [] for name in readers}
    for number in range(ROUNDS):
        for name in readers if number % 2 else reversed(readers):
            found[name].append(seconds(readers[name], folder / f"{name} {number}"))
        say(f"W14, round {number}: {found[LAKESINK][-1]:.2f} s, {found[ICEBERG][-1]:.2f} s by Iceberg's reader")
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
        settings = Settings.parse({"sink_id": "bench", "checkpoint": "/nowhere"}, kind=SinkKind.STREAM)
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


def seconds(rows: DataFrame, checkpoint: Path) -> float:
    """How long a reader takes for all that is there, with its start."""
    started = time.monotonic()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return time.monotonic() - started


def report(found: Mapping[str, Sequence[float]], rows: int) -> Result:
    """Medians, and how many times as fast lakesink reads."""
    ratio = Ratio.of(found[ICEBERG], found[LAKESINK])
    lines = [(name, statistics.median(times), int(rows / statistics.median(times))) for name, times in found.items()]
    return Result(
        "W14",
        f"{rows:,} rows of 8 columns in {BATCHES} batches, read as a stream",
        ("reader", "seconds", "rows a second"),
        tuple((name, f"{median:.2f}", f"{speed:,}") for name, median, speed in lines),
        (Goal("W14, reading against Iceberg's reader", 1.0, ratio.median, at_least=True),),
        raw={name: list(times) for name, times in found.items()},
        rounds=ROUNDS,
    )
