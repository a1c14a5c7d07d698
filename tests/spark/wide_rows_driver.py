"""A driver with a small heap that writes rows of which a few fill it. Prints what is in the tables then, as JSON.

Run as ``python -m tests.spark.wide_rows_driver FOLDER``.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table

HEAP = "512m"
"""Spark starts in no smaller one."""
WIDEST, MIDDLE, SLIM = 20_000_000, 450_000, 180_000


def main(folder: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").config("spark.driver.memory", HEAP)
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    parts = {
        "few of the widest rows": few_of_the_widest,
        "more rows than the first message may have": more_than_a_message,
        "a stream of wide rows after narrow ones": narrow_then_wide,
    }
    print(json.dumps({name: found(part(spark, folder)) for name, part in parts.items()}))


def few_of_the_widest(spark: SparkSession, _: Path) -> str:
    rows = spark.range(24).selectExpr("id", "id % 2 as m", f"repeat(cast(id % 10 as string), {WIDEST}) as text")
    lakesink.append(rows.coalesce(1), "demo.widest", txn=("a", 1), create_table=True, partition_by="m")
    return "demo.widest"


def more_than_a_message(spark: SparkSession, _: Path) -> str:
    rows = spark.range(1_100).selectExpr("id", f"repeat(cast(id % 10 as string), {MIDDLE}) as text")
    lakesink.append(rows.coalesce(1), "demo.middle", txn=("a", 1), create_table=True)
    return "demo.middle"


def narrow_then_wide(spark: SparkSession, folder: Path) -> str:
    source = folder / "in"
    source.mkdir()
    for number, (first, rows, width) in enumerate([(0, 20_000, 1), (20_000, 2_600, SLIM)]):
        lines = (json.dumps({"id": one, "width": width}) for one in range(first, first + rows))
        (source / f"{number}.json").write_text("\n".join(lines))
        os.utime(source / f"{number}.json", (1_700_000_000 + number,) * 2)
    read = spark.readStream.schema("id long, width int").option("maxFilesPerTrigger", 1).json(str(source))
    rows_of_stream = read.selectExpr("id", "repeat(cast(id % 10 as string), width) as text")
    writer = lakesink.stream(rows_of_stream, "demo.stream", sink_id="wide", checkpoint=folder / "ck", create_table=True)
    writer.trigger(availableNow=True).start().awaitTermination()
    return "demo.stream"


def found(table: str) -> Any:
    """Rows, ids, characters, and rows whose text is not the digit of their id, as DuckDB reads the files."""
    files = [task.file.file_path for task in load_table(connect(create=False), table).scan().plan_files()]
    wrong = "count(*) FILTER (replace(text, CAST(id % 10 AS VARCHAR), '') <> '')"
    query = f"SELECT count(*), count(DISTINCT id), sum(length(text))::BIGINT, {wrong} FROM read_parquet($files)"
    return duckdb.execute(query, {"files": files}).fetchone()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
