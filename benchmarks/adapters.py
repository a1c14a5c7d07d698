"""Milliseconds of one small batch by each way in, interleaved in one run: `lakesink.stream`, ``format("lakesink")``.

And `lakesink.stream_files`. Beside them Spark's own ways of doing nothing with a batch, `foreachBatch` without a body
and ``format("noop")``, and its own sink of Parquet files.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakesink
from benchmarks.result import Result
from benchmarks.session import session
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table

TABLE = "bench.numbers"
ROWS = 100
WARM_UP = 5


def source(spark: SparkSession, files: Path, count: int) -> DataFrame:
    """So many files of `ROWS` rows, one a batch; executors write them, for files do not say how many rows they hold."""
    if not files.exists():
        spark.range(count * ROWS).repartitionByRange(count, "id").write.parquet(str(files))
    return spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(files))


def properties(place: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{place / 'catalog.db'}", "warehouse": f"file://{place / 'wh'}"}


def by_stream(rows: DataFrame, place: Path) -> DataStreamWriter:
    names: dict[str, Any] = {"sink_id": "bench", "checkpoint": str(place / "ck"), "create_table": True}
    return lakesink.stream(rows, TABLE, catalog="bench", catalog_properties=properties(place), **names)


def by_format(rows: DataFrame, place: Path) -> DataStreamWriter:
    options = {f"catalog.{name}": value for name, value in properties(place).items()}
    names = {"table": TABLE, "sink-id": "bench", "checkpointLocation": str(place / "ck"), "create-table": "true"}
    return rows.writeStream.format("lakesink").option("catalog", "bench").options(**names, **options)


def by_nothing(rows: DataFrame, place: Path) -> DataStreamWriter:
    return rows.writeStream.option("checkpointLocation", str(place / "ck")).foreachBatch(lambda _rows, _batch: None)


def into_files(rows: DataFrame, place: Path) -> DataStreamWriter:
    return lakesink.stream_files(rows, place / "out", sink_id="bench", checkpoint=place / "ck")


def by_spark_files(rows: DataFrame, place: Path) -> DataStreamWriter:
    places = {"checkpointLocation": str(place / "ck"), "path": str(place / "out")}
    return rows.writeStream.options(**places).format("parquet")


def by_noop(rows: DataFrame, place: Path) -> DataStreamWriter:
    return rows.writeStream.option("checkpointLocation", str(place / "ck")).format("noop")


WAYS: dict[str, Callable[[DataFrame, Path], DataStreamWriter]] = {
    "empty foreachBatch": by_nothing,
    "format noop": by_noop,
    "lakesink.stream": by_stream,
    "format lakesink": by_format,
    "stream_files": into_files,
    "format parquet": by_spark_files,
}


def run(writer: DataStreamWriter) -> list[int]:
    """Milliseconds of every batch after the first few, as Spark measured them."""
    query = writer.trigger(availableNow=True).start()
    times: dict[int, int] = {}
    while query.isActive:
        times |= {report["batchId"]: report["durationMs"]["triggerExecution"] for report in query.recentProgress}
        time.sleep(0.2)
    query.awaitTermination()
    times |= {report["batchId"]: report["durationMs"]["triggerExecution"] for report in query.recentProgress}
    return [milliseconds for batch, milliseconds in sorted(times.items()) if batch >= WARM_UP]


def measure(folder: Path, say: Callable[[str], None], *, batches: int = 40, rounds: int = 3) -> Result:
    """Interleave the ways in: the median batch of each."""
    folder.mkdir(parents=True)
    spark = session()
    lakesink.register(spark)
    found: dict[str, list[int]] = {name: [] for name in WAYS}
    rows = source(spark, folder / "in", batches)
    for number in range(rounds):
        for name, way in WAYS.items():
            say(f"{name}, round {number}")
            place = folder / f"{name.replace(' ', '-')}-{number}"
            place.mkdir()
            found[name] += run(way(rows, place))
            if "lakesink" in name:
                table = load_table(connect("bench", properties(place)), TABLE)
                assert table.scan().to_arrow().num_rows == batches * ROWS
    spark.stop()
    lines = ((name, statistics.median(times), *_ends(times)) for name, times in found.items())
    heads = ("way in", "median ms", "5 %", "95 %")
    return Result("ways", f"a batch of {ROWS} rows by each way in", heads, tuple(lines), raw=found, rounds=rounds)


def _ends(times: Sequence[int]) -> tuple[int, int]:
    twentieths = statistics.quantiles(times, n=20)
    return round(twentieths[0]), round(twentieths[-1])
