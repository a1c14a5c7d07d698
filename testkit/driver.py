"""A real driver in its own process: streams all JSON-lines files into a table or a directory, then ends.

Run as ``python driver.py CONFIG``, where CONFIG is the JSON of `testkit.harness.Stream.config`. ``LAKESINK_HOME`` names
the folder of the embedded catalog; ``LAKESINK_FAILPOINTS`` says where this process dies.
"""

import json
import logging
import sys
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakesink
from lakesink.spark.rows import task_count


def main(config: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    task_count.FULL_TASK_BYTES = config["full_task_bytes"]
    on_connect = config["adapter"] == "connect"
    start = SparkSession.builder.remote if on_connect else SparkSession.builder.master
    builder = start(config["master"]).appName("lakesink driver under test")
    for name, value in config["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if not on_connect:
        spark.sparkContext.setLogLevel("ERROR")
    rows = spark.readStream.schema(config["schema"]).option("maxFilesPerTrigger", 1).json(config["source"])
    for condition in config["where"]:
        rows = rows.where(condition)
    query = WRITERS[config["adapter"]](rows, config).trigger(**config["trigger"]).start()
    for batch in config["heap_after"]:
        report_heap(spark, query, batch)
    query.awaitTermination()


def by_foreach_batch(rows: DataFrame, config: dict[str, Any]) -> DataStreamWriter:
    names = {name: config[name] for name in ("sink_id", "checkpoint")}
    return lakesink.stream(rows, config["table"], **names, **config["options"])


def by_format(rows: DataFrame, config: dict[str, Any]) -> DataStreamWriter:
    lakesink.register(rows.sparkSession)
    return by_installed_format(rows, config)


def by_installed_format(rows: DataFrame, config: dict[str, Any]) -> DataStreamWriter:
    """As Spark finds it, where lakesink is installed."""
    options = {name.replace("_", "-"): str(value) for name, value in config["options"].items()}
    names = {"table": config["table"], "sink-id": config["sink_id"], "checkpointLocation": config["checkpoint"]}
    return rows.writeStream.format("lakesink").options(**names, **options)


def into_files(rows: DataFrame, config: dict[str, Any]) -> DataStreamWriter:
    names = {name: config[name] for name in ("sink_id", "checkpoint")}
    return lakesink.stream_files(rows, config["table"], **names, **config["options"])


WRITERS = {
    "stream": by_foreach_batch,
    "format": by_format,
    "installed": by_installed_format,
    "connect": by_installed_format,
    "files": into_files,
}


def report_heap(spark: SparkSession, query: StreamingQuery, batch: int) -> None:
    """Print the size of the JVM's heap after a batch and a garbage collection."""
    while (query.lastProgress or {"batchId": -1})["batchId"] < batch:
        assert query.isActive, query.exception()
        time.sleep(0.2)
    jvm = spark.sparkContext._jvm  # noqa: SLF001 # PySpark has no way to the heap
    assert jvm is not None
    runtime = jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    print(f"heap_after batch={batch} mib={(runtime.totalMemory() - runtime.freeMemory()) / 1024**2:.1f}", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
