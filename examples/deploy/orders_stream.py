"""A stream as a service, or as a job that takes the files that have arrived. It stops after its batch.

SIGTERM, SIGINT (Ctrl-C) and the file that `--stop-file` names stop it. A SIGKILL at any moment loses nothing either: at
the next start, the interrupted batch is replayed.
"""

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import lakesink

GRACE_SECONDS = 60.0
"""How long a batch may go on after the stop was asked for; then Spark interrupts it, and it is replayed."""


def main() -> None:
    """Run until the stream is told to stop, or has taken what has arrived; an error of the stream ends with 1."""
    options = parse()
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("lakesink").setLevel(logging.INFO)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need a Python that has lakesink
    spark = SparkSession.builder.appName(options.sink_id).getOrCreate()
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):  # after the session, which installs a handler of its own
        signal.signal(number, lambda *_: asked.set())
    query = start(spark, options)
    print("started", flush=True)
    wait(query, lambda: asked.is_set() or (options.stop_file is not None and options.stop_file.exists()))
    spark.stop()
    print("stopped", flush=True)


def start(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """The query: replace the source by yours."""
    arrived = spark.readStream.schema("id LONG, amount DOUBLE, at TIMESTAMP").json(options.inbox)
    writer = lakesink.stream(
        arrived,
        options.table,
        sink_id=options.sink_id,
        checkpoint=options.checkpoint,
        catalog=options.catalog,
        create_table=True,
        partition_by="day(at)",
    )
    if options.available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=options.every).start()


def wait(query: StreamingQuery, asked_to_stop: Callable[[], bool]) -> None:
    """Wait for the end of the query, or for the request to stop and then for the end of the batch."""
    while query.isActive and not asked_to_stop():
        query.awaitTermination(1)  # raises the error of the query
    deadline = time.monotonic() + GRACE_SECONDS
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        query.awaitTermination(1)
    query.stop()
    query.awaitTermination()


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inbox", required=True, help="folder or URI of JSON files")
    parser.add_argument("--checkpoint", required=True, help="Spark's checkpoint, on storage that outlives the machine")
    parser.add_argument("--table", default="shop.orders")
    parser.add_argument("--sink-id", default="orders")
    parser.add_argument("--catalog", help="a catalog of PyIceberg's configuration; without it, the embedded one")
    parser.add_argument("--every", default="10 seconds", help="how often to look for files")
    parser.add_argument("--available-now", action="store_true", help="take what has arrived, and end")
    parser.add_argument("--stop-file", type=Path, help="stop when this file is there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
