"""A real driver in a process of its own: streams a Kafka topic into a table until it has all that is there now.

Run as ``python kafka_driver.py CONFIG``, where CONFIG is the JSON of `tests.interop.kafka_streams.KafkaStream.config`.
"""

import json
import logging
import sys
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import col, from_json

import lakesink


def main(config: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    builder = SparkSession.builder.appName("lakesink driver under test")
    for name, value in config["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    records = spark.readStream.format("kafka").options(**config["source"]).load()
    rows = records.select("partition", "offset", decoded(config).alias("record")).select(
        "partition", "offset", "record.*"
    )
    names = {name: config[name] for name in ("sink_id", "checkpoint")}
    writer = lakesink.stream(rows, config["table"], **names, create_table=True)
    writer.trigger(availableNow=True).start().awaitTermination()


def decoded(config: dict[str, Any]) -> Column:
    if config["form"] == "avro":
        return from_avro("value", config["schema"])
    return from_json(col("value").cast("string"), config["schema"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
