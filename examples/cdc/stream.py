"""The stream: the change events of a table of orders keep a table in the lake equal to it.

Without an argument, it reads records of Kafka from files; with one, such as `localhost:9092`, from a broker. This needs
Spark's package for Kafka: `--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.4` of spark-submit.
"""

import os
import sys

from pyspark.sql import DataFrame, SparkSession

import lakesink

RECORD = "key STRING, value STRING, topic STRING, partition INT, offset LONG"  # the columns of Spark's Kafka source


def records(spark: SparkSession, broker: str | None) -> DataFrame:
    """The records of Debezium's topic."""
    if broker is None:
        return spark.readStream.schema(RECORD).option("maxFilesPerTrigger", 1).json("topic")
    kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker)
    return kafka.option("subscribe", "shop.public.orders").option("startingOffsets", "earliest").load()


os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need a Python that has lakesink
builder = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", "false")
spark = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()

writer = lakesink.stream(
    records(spark, *(sys.argv[1:] or [None])),
    "shop.orders",
    sink_id="orders",
    checkpoint="checkpoints/orders",
    mode="changes",
    keys=["order_id"],
    decode="debezium-json",
    sequence_by=["updated_at"],
    schema_evolution="widen",
    on_malformed="quarantine",
    verbose=False,
)
writer.trigger(availableNow=True).start().awaitTermination()
