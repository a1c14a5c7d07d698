"""A driver whose terminal a test looks at: streams of all kinds, while another job draws Spark's progress bar.

Its argument is an empty folder. It prints a heading before each part.
"""

import logging
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakesink
from lakesink_protocol.errors import LakesinkError
from tests.spark.directory_sink import DirectorySink
from tests.spark.streams import file_stream, forget_commits, write_files

BAR_TASKS, TASK_SECONDS = 3_000, 0.3


def main(folder: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[3]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "true")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.scheduler.mode", "FAIR")  # else the batches wait for the job that draws the bar
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    draw_bars(spark)
    write_files(folder / "in", 3)
    for name, part in PARTS.items():
        print(f"\n== {name}", flush=True)
        part(spark, folder)
    print("\n== end", flush=True)
    os._exit(0)  # the job that draws the bar is not waited for


def draw_bars(spark: Any) -> None:
    """Keep a progress bar on the terminal, which moves a few times a second."""
    context = spark.sparkContext

    def sleep() -> None:
        context.setLocalProperty("spark.scheduler.pool", "bar")
        context.parallelize(range(BAR_TASKS), BAR_TASKS).map(lambda _: time.sleep(TASK_SECONDS)).count()

    threading.Thread(target=sleep, daemon=True).start()
    time.sleep(2)  # Spark draws no bar for shorter stages


def table(spark: Any, folder: Path, **options: Any) -> None:
    """Run a stream into a table over everything that has arrived."""
    into: dict[str, Any] = {"sink_id": "events", "checkpoint": str(folder / "ck"), "create_table": True} | options
    run(lakesink.stream(file_stream(spark, folder / "in"), "demo.events", **into))


def run(stream: Any) -> None:
    with suppress(PySparkException):
        stream.trigger(availableNow=True).start().awaitTermination()
    time.sleep(1)  # the summary comes from another thread


def first(spark: Any, folder: Path) -> None:
    os.environ["LAKESINK_FAILPOINTS"] = "after-prepared@2=raise"
    table(spark, folder)
    del os.environ["LAKESINK_FAILPOINTS"]


def replayed(spark: Any, folder: Path) -> None:
    forget_commits(folder / "ck", 1)
    table(spark, folder)


def refused(spark: Any, folder: Path) -> None:
    table(spark, folder, checkpoint=str(folder / "lost"))


def null_keys(spark: Any, _: Path) -> None:
    spark.sparkContext.setLogLevel("WARN")
    with suppress(LakesinkError):
        lakesink.upsert(
            spark.sql("SELECT CAST(NULL AS INT) AS id"),
            "demo.keyed",
            txn=("nightly", 1),
            keys=["id"],
            create_table=True,
        )
    spark.sparkContext.setLogLevel("OFF")


def appended(spark: Any, _: Path) -> None:
    lakesink.append(spark.range(5), "demo.loads", txn=("nightly", 42), create_table=True)


def files(spark: Any, folder: Path) -> None:
    place = folder / "out"
    run(lakesink.stream_files(file_stream(spark, folder / "in"), place, sink_id="f", checkpoint=folder / "ck-f"))


def own_sink(spark: Any, folder: Path) -> None:
    sink = DirectorySink(folder / "own")
    run(lakesink.stream_to(file_stream(spark, folder / "in"), sink, checkpoint=folder / "ck-own"))


def silent(spark: Any, folder: Path) -> None:
    table(spark, folder, sink_id="silent", checkpoint=str(folder / "ck-silent"), verbose=False)


def warnings_logged(spark: Any, folder: Path) -> None:
    logging.basicConfig(format="log: %(message)s")
    replay: dict[str, Any] = {"sink_id": "logged", "checkpoint": str(folder / "ck-logged")}
    os.environ["LAKESINK_FAILPOINTS"] = "after-prepared@2=raise"
    table(spark, folder, **replay)
    del os.environ["LAKESINK_FAILPOINTS"]
    table(spark, folder, **replay)


def all_logged(spark: Any, folder: Path) -> None:
    logging.getLogger("lakesink").setLevel(logging.INFO)
    table(spark, folder, sink_id="all", checkpoint=str(folder / "ck-all"))


PARTS = {
    "first": first,
    "recovered": table,
    "replayed": replayed,
    "refused": refused,
    "null keys": null_keys,
    "appended": appended,
    "files": files,
    "own sink": own_sink,
    "silent": silent,
    "warnings logged": warnings_logged,
    "all logged": all_logged,
}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
