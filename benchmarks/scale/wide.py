"""One batch of many partitions: a million rows from two files, with and without a shuffle by partition."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

from benchmarks import data
from benchmarks.oracle import WrongRows
from benchmarks.result import Goal, Result
from benchmarks.scale.panel import Panel
from benchmarks.session import CATALOG, TABLE_PROPERTIES, catalog_properties, session
from benchmarks.sinks import LAKESINK, Target
from benchmarks.steps import STEPS, WRITE
from benchmarks.stopwatch import Stopwatch, timing
from benchmarks.usage import measured
from lakesink.spark.rows.frame_schema import arrow_schema
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table

KEY = "partitions"
PARTITIONS = {"none": (10, 1_000, 10_000), "hash": (10, 1_000, 10_000, 100_000)}
"""Sizes by the distribution mode of the table."""
SHORT_PARTITIONS = {"none": (10, 200), "hash": (10, 500)}
ROWS, SHORT_ROWS = 1_000_000, 20_000
FILES = 2
MOST_TIMES_MEMORY = 1.25
SECONDS, DRIVER, MEMORY = "query, s", "driver without the job, s", "one worker, MiB"
_MIB = 1024**2
_WARM_UP = 2
_QUERY = """
    select i % {partitions} as part, i as id, md5(i::varchar) as name, i / 7 as price from range({first}, {last}) t(i)
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch.

    Attributes:
        mode: Distribution.
        partitions: It has so many.
        files: It has written so many.
        seconds: Of the whole query.
        driver_seconds: Of the driver's function, without the job that writes.
        worker_bytes: Most memory of one Python worker.
    """

    mode: str
    partitions: int
    files: int
    seconds: float
    driver_seconds: float
    worker_bytes: int


def measure(folder: Path, say: Callable[[str], None], *, short: bool = False) -> Result:
    """A session for each mode, so that each begins with fresh workers; few partitions first."""
    folder.mkdir(parents=True)
    found = []
    for mode, sizes in (SHORT_PARTITIONS if short else PARTITIONS).items():
        spark = session()
        for partitions in (_WARM_UP, *sizes):
            say(f"{KEY}: {partitions:,} partitions, {mode}")
            place = folder / f"{mode}-{partitions}"
            found.append(_run(spark, place, mode, partitions, SHORT_ROWS if short else ROWS))
        spark.stop()
    return report([batch for batch in found if batch.partitions != _WARM_UP])


def _run(spark: SparkSession, place: Path, mode: str, partitions: int, rows: int) -> Batch:
    source = place / "source"
    source.mkdir(parents=True)
    for number in range(FILES):
        first, last = number * rows // FILES, (number + 1) * rows // FILES
        data.write(source / f"{number}.parquet", _QUERY.format(partitions=partitions, first=first, last=last))
    stream = spark.readStream.schema(spark.read.parquet(str(source)).schema).parquet(str(source))
    target = Target(place, "bench.wide", catalog_properties(place))
    catalog, properties = connect(CATALOG, target.properties), {**TABLE_PROPERTIES, "write.distribution-mode": mode}
    create_table(catalog, target.table, arrow_schema(stream.schema), "part", properties=properties)
    stopwatch, started = Stopwatch(), time.perf_counter()
    with measured() as used, timing(stopwatch, STEPS):
        writer = LAKESINK.writer(stream, target).trigger(availableNow=True)
        LAKESINK.start(writer, target).awaitTermination()
    seconds = time.perf_counter() - started
    [laps] = stopwatch.batches
    driver = sum(taken for lap, taken in laps.items() if not lap.startswith(WRITE)) / 1000
    files = _checked(target, partitions, rows)
    return Batch(mode, partitions, files, seconds, driver, used.worker_peak_bytes)


def _checked(target: Target, partitions: int, rows: int) -> int:
    """Number of files: every file that is there is in the table, and together they have all rows once."""
    snapshot = connect(CATALOG, target.properties).load_table(target.table).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    files = int(snapshot.summary["added-data-files"] or 0)
    paths = list(map(str, target.folder.glob("warehouse/**/data/**/*.parquet")))
    query = "select count(*), count(distinct id), min(id), max(id), count(distinct part) from read_parquet(?)"
    row = duckdb.execute(query, [paths]).fetchone()
    if len(paths) != files or row != (rows, rows, 0, rows - 1, partitions):
        raise WrongRows(f"{row} in {len(paths)} files, of which the table has {files}")
    return files


def line_of(mode: str) -> str:
    """The label of a line."""
    return f"distribution {mode}"


def report(found: Sequence[Batch]) -> Result:
    """A row for each batch; a worker's memory at the most partitions is judged by that at a hundredth of them."""
    hashed = [one for one in found if one.mode == "hash"]
    few, most = hashed[-3:][0], hashed[-1]
    name = f"a worker's memory at {most.partitions:,} partitions to that at {few.partitions:,}"
    goals = (Goal(name, MOST_TIMES_MEMORY, most.worker_bytes / few.worker_bytes, at_least=False),)
    heads = ("distribution", "partitions", "files", "query s", "driver without the job s", "one worker MiB")
    panels = [
        Panel("partitions in one batch", SECONDS, _lines(found, lambda one: one.seconds)),
        Panel("partitions in one batch", DRIVER, _lines(found, lambda one: one.driver_seconds)),
        Panel("partitions in one batch", MEMORY, _lines(found, lambda one: one.worker_bytes / _MIB)),
    ]
    title = "one batch by the partitions that it has"
    return Result(KEY, title, heads, tuple(map(_row, found)), goals, panels)


def _row(one: Batch) -> tuple[str | float | int, ...]:
    seconds = round(one.seconds, 1), round(one.driver_seconds, 2)
    return one.mode, f"{one.partitions:,}", f"{one.files:,}", *seconds, one.worker_bytes // _MIB


def _lines(found: Sequence[Batch], value: Callable[[Batch], float]) -> dict[str, list[tuple[float, float]]]:
    return {
        line_of(mode): [(one.partitions, value(one)) for one in found if one.mode == mode]
        for mode in dict.fromkeys(one.mode for one in found)
    }
