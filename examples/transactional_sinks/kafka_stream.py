"""A stream of JSON files into a Kafka topic, each batch in one transaction and once.

Run as ``python kafka_stream.py BOOTSTRAP_SERVERS``, in a folder with an ``inbox`` of JSON files. The topic ``orders``
must exist.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import lakesink


def main(bootstrap_servers: str) -> None:
    """Send every file that has arrived, one a batch, and end."""
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    orders = spark.readStream.schema("id LONG, amount DECIMAL(12, 2)").option("maxFilesPerTrigger", "1").json("inbox")
    records = orders.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value")
    sink = lakesink.KafkaSink(bootstrap_servers, topic="orders", sink_id="orders", staging=Path("staging"))
    writer = lakesink.stream_to(records, sink, checkpoint=Path("checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
