"""A driver that runs streams of numbers into one table, each until its next batch is done, in the current folder.

Run as ``python driver.py SINK...``. Table, catalog and checkpoints have relative names, and the source has no place at
all: what is written here can be carried to another folder, and another time.
"""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

import lakesink
from lakesink_catalog.connect.catalog import connect

TABLE = "demo.numbers"
ENVIRONMENT: Mapping[str, str] = {
    "PYICEBERG_HOME": ".",
    "PYICEBERG_CATALOG__LAKE__TYPE": "sql",
    "PYICEBERG_CATALOG__LAKE__URI": "sqlite:///catalog.db",
    "PYICEBERG_CATALOG__LAKE__WAREHOUSE": ".",
}
CONF = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # short runs: start fast
    "spark.master": "local[1]",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
SOURCE = {"rowsPerBatch": 10, "startTimestamp": 1_700_000_000_000, "advanceMillisPerBatch": 1000}
SCHEMA = pa.schema([("sink", pa.string()), ("value", pa.int64())])


def main(sinks: Sequence[str]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    os.environ.update(ENVIRONMENT)
    catalog = connect("lake")
    if not catalog.table_exists(TABLE):
        catalog.create_namespace("demo")
        catalog.create_table(TABLE, SCHEMA, location="numbers")
    builder = SparkSession.builder
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for sink in sinks:
        numbers = spark.readStream.format("rate-micro-batch").options(**SOURCE).load()
        rows = numbers.select(lit(sink).alias("sink"), "value")
        kept: dict[str, Any] = {"prepared_max_age": "36500 days"}  # a record that waited in a repository is old
        writer = lakesink.stream(rows, TABLE, sink_id=sink, checkpoint=f"checkpoints/{sink}", catalog="lake", **kept)
        writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
