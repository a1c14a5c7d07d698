"""A first stream: files that arrive in ./inbox become rows of the table demo.events, each exactly once.

Run it with a Python that has lakesink. Run it again, or kill it and run it again: no row is lost or doubled.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import lakesink

os.chdir(Path(__file__).parent)  # .pyiceberg.yaml is read here, and the table is in ./lakehouse
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need a Python that has lakesink
spark = SparkSession.builder.master("local[2]").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

# Something arrives. Replace this by your own source, for example spark.readStream.format("kafka").
spark.range(1000).selectExpr("id", "current_timestamp() AS at").write.mode("append").json("inbox")
events = spark.readStream.schema("id LONG, at TIMESTAMP").json("inbox")

writer = lakesink.stream(
    events,
    "demo.events",
    sink_id="events",  # the name of this stream, for life
    checkpoint="checkpoints/events",  # of this query alone
    create_table=True,
    partition_by="day(at)",
)
query = writer.trigger(availableNow=True).start()  # or processingTime="10 seconds", which never ends
query.awaitTermination()

for record in lakesink.history("demo.events"):
    print(f"batch {record.batch_id}: {record.rows} rows, snapshot {record.snapshot_id}, {record.outcome}")
