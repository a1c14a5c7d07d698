"""A stream that takes the files that have arrived since the last run, and ends: start it from cron.

Run it again: it writes only the new file. Kill it anywhere and run it again: every order is in the table once.
"""

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import lakesink

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need a Python that has lakesink

# What another program would do: a file arrives, whole, under a name of its own.
inbox = Path("inbox")
inbox.mkdir(exist_ok=True)
orders = [{"id": number, "amount": number * 0.5, "at": "2026-01-31T12:00:00Z"} for number in range(100)]
(inbox / f"{time.time_ns()}.json").write_text("\n".join(json.dumps(order) for order in orders))

spark = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", "false").getOrCreate()
arrived = spark.readStream.schema("id LONG, amount DOUBLE, at TIMESTAMP").json(str(inbox))

query = (
    lakesink.stream(
        arrived,
        "shop.orders",
        sink_id="orders",
        checkpoint="checkpoints/orders",
        create_table=True,
        partition_by="day(at)",
    )
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

batches = lakesink.history("shop.orders")
print(f"{len(list(inbox.iterdir()))} files, {len(batches)} batches, {sum(batch.rows for batch in batches)} orders")
