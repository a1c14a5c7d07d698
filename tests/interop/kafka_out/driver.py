"""A real driver in a process of its own: streams numbered files into a topic until all that is there now is in it.

Run as ``python driver.py CONFIG``, where CONFIG is the JSON of `tests.interop.kafka_out.streams.TopicStream.config`.
"""

import json
import logging
import sys
from typing import Any

from pyspark.sql import SparkSession

import lakesink


def main(config: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    builder = SparkSession.builder.appName("lakesink driver under test").master(config["master"])
    for name, value in config["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    files = spark.readStream.schema(config["schema"]).option("maxFilesPerTrigger", "1").json(config["source"])
    records = files.selectExpr("CAST(row AS STRING) AS key", "to_json(struct(file, row)) AS value")
    sink = lakesink.KafkaSink(
        config["bootstrap"], topic=config["table"], sink_id=config["sink_id"], staging=config["staging"]
    )
    writer = lakesink.stream_to(records.repartition(3), sink, checkpoint=config["checkpoint"])
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
