"""A driver that writes its small batches itself; with ``KILL_JVM`` its JVM dies while it hands over the second."""

import json
import logging
import os
import signal
import sys
import time
from threading import Event
from typing import Any

from pyspark.sql import SparkSession

import lakesink
from lakesink.spark.rows.job import RowsJob
from lakesink.spark.rows.task import RawBytes

ROWS = 8_000
BATCHES = 3
PATIENCE_SECONDS = 300


def main(config: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    builder = SparkSession.builder.master(config["master"])
    for key, value in config["conf"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    killing = "KILL_JVM" in os.environ
    ended = Ended()
    if killing:
        arm(spark, ended)
    rate = {"rowsPerBatch": ROWS, "numPartitions": 4, "startTimestamp": 1_700_000_000_000}
    rows = (
        spark.readStream.format("rate-micro-batch").options(**rate).load().selectExpr("value", "repeat('x', 90) text")
    )
    names = {name: config[name] for name in ("sink_id", "checkpoint")}
    query = lakesink.stream(rows, config["table"], **names, **config["options"]).start()
    if killing:
        ended.told.wait(PATIENCE_SECONDS)  # nothing can be asked of the JVM any more
        sys.exit(1)
    while (query.lastProgress or {"batchId": -1})["batchId"] < BATCHES - 1:
        if not query.isActive:
            query.awaitTermination()  # raises why
        time.sleep(0.1)
    query.stop()


class Ended(logging.Handler):
    """Waits for lakesink's line about the second batch, well or not."""

    def __init__(self) -> None:
        super().__init__()
        self.told = Event()

    def emit(self, record: logging.LogRecord) -> None:
        if " batch=1 " in record.getMessage():
            self.told.set()


def arm(spark: SparkSession, ended: Ended) -> None:
    """Kill the JVM once the driver has the first message of a batch, which is the second: executors wrote the first."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001 # PySpark does not tell its pid
    assert jvm is not None
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    batches = []
    write = RowsJob._write_here  # noqa: SLF001 # the place where it happens

    def write_here(job: RowsJob, *arguments: Any) -> bytes:
        batches.append(job)
        logging.getLogger("lakesink").addHandler(ended)
        return write(job, *arguments)

    def loads(_: RawBytes, obj: bytes) -> bytes:
        if batches:
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.5)  # what was on its way is here or lost
        return obj

    RowsJob._write_here = write_here  # type: ignore[assignment,method-assign] # noqa: SLF001 # as above
    RawBytes.loads = loads  # type: ignore[assignment,method-assign] # as above


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
