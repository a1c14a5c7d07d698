"""The stream: every file that has arrived is a batch; documents that are no orders become dead letters."""

import os
import sys

from pyspark.sql import SparkSession

import lakesink

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need a Python that has lakesink
spark = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", "false").getOrCreate()
documents = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load("inbox")  # one document a line

writer = lakesink.stream(
    documents,
    "shop.orders",
    sink_id="orders",
    checkpoint="checkpoints/orders",
    decode="json",
    on_malformed="quarantine",
    expect={"not_negative": ("cents IS NULL OR cents >= 0", "quarantine")},
    verbose=False,
)
writer.trigger(availableNow=True).start().awaitTermination()
