"""The stream: every file that has arrived is a batch, and the table follows its documents."""

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
    schema_evolution="widen",  # new keys become columns, and numbers that are too large widen theirs
    rescue_column="_rescued",  # what no column holds stays with its row
    verbose=False,
)
writer.trigger(availableNow=True).start().awaitTermination()
