"""A driver whose streams fail in several ways; what Python and Spark print of each is on its stderr.

Run as ``python -m tests.spark.refused_driver FOLDER``; a line ``== NAME`` begins the output of each.
"""

import logging
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from tests.spark.streams import file_stream, write_files

TABLE = "demo.events"


def main(folder: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    write_files(folder / "in", 2)

    def run(table: str = TABLE, rows: str = "id", **options: Any) -> None:
        into: dict[str, Any] = {"sink_id": "events", "checkpoint": folder / table, "create_table": True} | options
        writer = lakesink.stream(file_stream(spark, folder / "in").selectExpr(rows), table, **into)
        writer.trigger(availableNow=True).start().awaitTermination()

    def unlogged() -> None:
        logging.getLogger("lakesink").setLevel(logging.CRITICAL)
        run(verbose=False)

    parts: dict[str, Callable[[], None]] = {
        "refused": run,
        "found by a task": lambda: run("demo.keyed", "nullif(id, 3) as id", mode="upsert", keys=["id"]),
        "before the start": lambda: run(sequence_by="id"),
        "refused without a log": unlogged,
    }
    run()
    roll_back_to_batch_0()
    write_files(folder / "in", 1, first=2)
    for name, part in parts.items():
        print(f"== {name}", file=sys.stderr, flush=True)
        try:
            part()
        except Exception:  # noqa: BLE001 - printed as at the end of a program
            traceback.print_exc()


def roll_back_to_batch_0() -> None:
    first = next(record for record in lakesink.history(TABLE) if record.batch_id == 0)
    table = load_table(connect(create=False), TABLE)
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
