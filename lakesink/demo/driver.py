"""The Spark driver of the demo: a process of its own, so that it can be killed like any other.

Run as ``python -m lakesink.demo.driver FOLDER FILES_PER_BATCH``; the embedded catalog is that of ``LAKESINK_HOME``.
"""

import logging
import os
import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession

import lakesink
from lakesink.demo.flights import SPARK_SCHEMA
from lakesink.demo.place import SINK_ID, TABLE, Place
from lakesink_catalog.connect import EMBEDDED_NAME


def main(folder: Path, files_per_batch: int) -> None:
    """Stream all files that there are, then end.

    Args:
        folder: The demo's folder.
        files_per_batch: Files that a micro-batch reads.
    """
    logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("lakesink").setLevel(logging.INFO)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    place = Place(folder)
    spark = _session(place)
    flights = (
        spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", files_per_batch).parquet(str(place.days))
    )
    query = (
        lakesink.stream(
            flights,
            TABLE,
            sink_id=SINK_ID,
            checkpoint=place.checkpoint,
            catalog=EMBEDDED_NAME,
            create_table=True,
            partition_by="month(time_hour)",
        )
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def _die_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # nobody writes: it returns when the other end is closed
    os._exit(1)


def _session(place: Place) -> SparkSession:
    session = (
        SparkSession.builder.master("local[2]")
        .appName("lakesink-demo")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # short runs: start fast
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(place.home / "spark"))
        .config("spark.sql.warehouse.dir", str(place.home / "spark"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
