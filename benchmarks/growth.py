"""W18: how long a batch of upserts takes after ten batches and after a thousand, if only lakesink compacts."""

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from pyiceberg.table import Table
from pyspark.sql import SparkSession

import lakesink
from benchmarks.fall import ADD_BATCH
from benchmarks.large_table import COLUMNS, SCHEMA, LargeFiles, RandomChanges
from benchmarks.oracle import WrongRows
from benchmarks.result import Goal, Result, quantile
from benchmarks.session import CATALOG, catalog_properties, iceberg_conf, session
from lakesink_catalog.connect.catalog import connect

ROWS, FILES = 10_000_000, 20
BATCHES = 1_000
SIZES = (200, 10_000)
"""Changes of a batch."""
FROM, AROUND = 10, 10
"""Batches after which, and how many of them, a time is the median of."""
GOAL = 1.3
"""How many times as long the last batches may take as those after the tenth."""
TABLE = "bench.grown"
_WRONG = """
SELECT id, found.version, found.quantity, newest.version, newest.quantity
FROM (SELECT id, version, quantity FROM found) AS found
FULL JOIN (
    SELECT id, max(version) AS version, arg_max(quantity, version) AS quantity FROM read_parquet({files}) GROUP BY id
) AS newest USING (id)
WHERE (found.version, found.quantity) IS DISTINCT FROM (newest.version, newest.quantity)
LIMIT 20
"""


@dataclass(frozen=True, slots=True)
class Grown:
    """A stream of batches of one size: milliseconds of `addBatch` of each, and what the table has afterwards."""

    changes: int
    add_batch_ms: Sequence[float]
    data_files: int
    delete_files: int

    @property
    def early(self) -> float:
        """The median after the tenth batch."""
        return statistics.median(self.add_batch_ms[FROM : FROM + AROUND])

    @property
    def late(self) -> float:
        """The median of the last batches."""
        return statistics.median(self.add_batch_ms[-AROUND:])


def measure(folder: Path, say: Callable[[str], None], scale: float = 1.0) -> Result:
    """One stream for each size of a batch."""
    folder.mkdir()
    files = LargeFiles.made(int(ROWS * scale), FILES, say)
    spark = session({**iceberg_conf(folder), "spark.sql.streaming.numRecentProgressUpdates": str(2 * BATCHES)})
    found = []
    for changes in SIZES:
        found.append(_grown(spark, folder, files, changes))
        say(f"W18, {changes:,} changes: {found[-1].early:.0f} ms early, {found[-1].late:.0f} ms late")
    spark.stop()
    return report(found, files.rows)


def _grown(spark: SparkSession, folder: Path, files: LargeFiles, changes: int) -> Grown:
    place, table = folder / str(changes), f"{TABLE}_{changes}"
    source = place / "source"
    source.mkdir(parents=True)
    catalog = connect(CATALOG, catalog_properties(folder))
    catalog.create_namespace_if_not_exists("bench")
    options: dict[str, Any] = {"catalog": CATALOG, "catalog_properties": catalog_properties(folder)}
    catalog.create_table(table, SCHEMA, properties={"format-version": "2"})
    for number, path in enumerate(files.paths):  # the stream compacts only files that it could have written itself
        lakesink.append(spark.read.schema(COLUMNS).parquet(str(path)), table, txn=("load", number), **options)
    random = RandomChanges(place, files.rows, changes)
    paths = [random.write(number) for number in range(BATCHES)]
    for number, path in enumerate(paths):
        random.arrive(path, source)
        os.utime(source / path.name, (number, number))  # Spark takes files in the order of their times
    arriving = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(source))
    stream = lakesink.stream(
        arriving, table, sink_id="bench", checkpoint=str(place / "checkpoint"), mode="upsert", keys=["id"], **options
    )
    query = stream.trigger(availableNow=True).start()
    query.awaitTermination()
    times = {one["batchId"]: one["durationMs"][ADD_BATCH] for one in query.recentProgress if one["numInputRows"]}
    changed = catalog.load_table(table)
    _check(changed, [*files.paths, *paths])
    summary = changed.current_snapshot().summary  # type: ignore[union-attr]
    counts = (int(summary[name] or 0) for name in ("total-data-files", "total-delete-files"))  # type: ignore[index]
    return Grown(changes, [times[number] for number in sorted(times)], *counts)


def _check(table: Table, written: Sequence[Path]) -> None:
    """The table has the newest row of each key, and no other."""
    with duckdb.connect() as database:
        found = table.scan(selected_fields=("id", "version", "quantity")).to_arrow()
        database.register("found", found)
        wrong = database.execute(_WRONG.format(files=[str(path) for path in written])).fetchall()
    if wrong:
        raise WrongRows(f"id, version and quantity found, and expected: {wrong}")


def report(found: Sequence[Grown], rows: int) -> Result:
    """Medians, and how many times as long the last batches take."""
    lines = tuple(
        (
            f"{one.changes:,}",
            round(one.early),
            round(one.late),
            round(one.late / one.early, 2),
            round(quantile(one.add_batch_ms, 99)),
            round(max(one.add_batch_ms[1:])),
            one.data_files,
            one.delete_files,
        )
        for one in found
    )
    goals = tuple(
        Goal(f"W18, {one.changes:,} changes, after {BATCHES:,} batches", GOAL, one.late / one.early, at_least=False)
        for one in found
    )
    heads = (
        *("changes", f"after {FROM} batches ms", f"after {BATCHES:,} ms", "times as long"),
        *("p99 ms", "longest ms", "data files", "delete files"),
    )
    title = f"addBatch of random upserts into {rows:,} rows, compacted by lakesink alone"
    raw = {one.changes: list(one.add_batch_ms) for one in found}
    return Result("W18", title, heads, lines, goals, raw=raw, rounds=1)
