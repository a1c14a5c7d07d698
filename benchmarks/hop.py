"""What the way from the JVM to Python costs, and what it could: for `docs/understand/upstream.md`, on any PySpark.

The Python side counts rows and does nothing else. Cases of one group run in turn; what a later group does to Spark's
workers stays with them.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from benchmarks import data
from benchmarks.result import Result
from benchmarks.session import session
from benchmarks.usage import measured
from lakesink.spark.query import QUERY_ID, RunningQuery
from lakesink.spark.rows.arrow_limits import MAX_BYTES, NO_BYTE_CHECK
from lakesink.spark.rows.batch_rows import PlanRows, arriving_schema, arrow_converter
from lakesink.spark.rows.transport import Transport, as_whole_numbers, short_decimals
from lakesink.spark.rows.worker_reuse import make_reuse_cheap
from lakesink_tools.checks.doctor.probe import CountingWriter

SPARK_BYTES = str(64 * 1024 * 1024)

Cases = dict[str, Callable[[], object]]


def counted(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def counted_by_spared_workers(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    make_reuse_cheap()
    yield from counted(batches)


def groups(spark: SparkSession, source: Path) -> Iterator[Cases]:
    """Cases that are measured in turn, group by group."""
    rows = spark.read.parquet(str(source))
    whole = as_whole_numbers(rows, short_decimals(rows))
    yield {
        "scan alone": lambda: rows.write.format("noop").mode("overwrite").save(),
        "to Python, Spark's defaults": lambda: hop(rows, SPARK_BYTES),
        "without the check of bytes a row": lambda: hop(rows, NO_BYTE_CHECK),
        "and decimals as longs": lambda: hop(whole, NO_BYTE_CHECK),
        "without the check, within foreachBatch": lambda: streamed(spark, source, rows.schema, by_frame),
        "the same from the query's own plan": lambda: streamed(spark, source, rows.schema, by_plan),
    }
    few = spark.range(100).repartition(2)
    yield {"100 rows": lambda: few.mapInArrow(counted, "rows long").collect()}
    yield {
        "100 rows, by workers that spare themselves": lambda: few.mapInArrow(
            counted_by_spared_workers, "rows long"
        ).collect()
    }


def hop(sent: DataFrame, most_bytes: str) -> None:
    sent.sparkSession.conf.set(MAX_BYTES, most_bytes)
    sent.mapInArrow(counted, "rows long").collect()


def by_frame(batch: DataFrame, _: int) -> None:
    hop(batch, NO_BYTE_CHECK)


def by_plan(batch: DataFrame, batch_id: int) -> None:
    session = SparkSession.active()
    plan = RunningQuery(session, session.sparkContext.getLocalProperty(QUERY_ID)).plan(batch_id)
    assert plan is not None, "this PySpark does not tell it"
    PlanRows(batch, Transport(), plan, arriving_schema(batch), arrow_converter(batch)).reports(CountingWriter())


def streamed(spark: SparkSession, source: Path, schema: StructType, function: Callable[[DataFrame, int], None]) -> None:
    rows = spark.readStream.schema(schema).parquet(str(source))
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = rows.writeStream.foreachBatch(function)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()


def medians(cases: Cases, rounds: int) -> Iterator[tuple[str, float, float]]:
    """Of every case the seconds and those of processor; one round before is to warm up."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, run in cases.items():
            with measured() as used:
                run()
            if number:
                found[name].append((used.seconds, used.cpu_seconds))
    for name, runs in found.items():
        wall, cpu = (statistics.median(column) for column in zip(*runs, strict=True))
        yield name, wall, cpu


def measure(folder: Path, say: Callable[[str], None], *, rows: int = 4_000_000, rounds: int = 5) -> Result:
    """The medians; `docs/understand/upstream.md` says what is behind each line."""
    spark = session()
    source = data.Source.make(folder / "in", data.LINEITEM, rows)
    lines = []
    for cases in groups(spark, source.folder):
        say(", ".join(cases))
        lines += [(name, round(wall, 3), round(cpu, 3)) for name, wall, cpu in medians(cases, rounds)]
    spark.stop()
    title = f"from the JVM to Python, {rows:,} rows of 13 columns"
    return Result("hop", title, ("way", "seconds", "processor s"), tuple(lines), rounds=rounds)
