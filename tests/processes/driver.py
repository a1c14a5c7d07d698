"""A real driver in a process of its own: streams JSON-lines files into an Iceberg table until they are used up.

Run as ``python driver.py CONFIG``, where CONFIG is the JSON of `tests.processes.harness.Stream.config`. The embedded
catalog lies where ``LAKESINK_HOME`` says; ``LAKESINK_FAILPOINTS`` says where this process dies.
"""

import json
import logging
import sys
from typing import Any

from pyspark.sql import SparkSession

import lakesink


def main(config: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    builder = SparkSession.builder.master(config["master"]).appName("lakesink driver under test")
    for name, value in config["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.readStream.schema(config["schema"]).option("maxFilesPerTrigger", 1).json(config["source"])
    for condition in config["where"]:
        rows = rows.where(condition)
    writer = lakesink.stream(
        rows,
        config["table"],
        sink_id=config["sink_id"],
        checkpoint=config["checkpoint"],
        **config["options"],
    )
    query = writer.trigger(**config["trigger"]).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
