"""A driver that follows a topic whose initial load overlaps with its changes: ``python overlap_driver.py BROKER``."""

import sys

from pyspark.sql import SparkSession

import lakesink

spark = SparkSession.builder.master("local[2]").getOrCreate()
kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", sys.argv[1])
records = kafka.option("subscribe", "shop.public.orders").option("startingOffsets", "earliest")
writer = lakesink.stream(
    records.option("maxOffsetsPerTrigger", 500).load(),
    "shop.orders",
    sink_id="orders",
    checkpoint="checkpoints/orders",
    mode="changes",
    keys=["order_id"],
    sequence_by="updated_at",
    deletes="soft",
    decode="debezium-json",
)
writer.trigger(availableNow=True).start().awaitTermination()
