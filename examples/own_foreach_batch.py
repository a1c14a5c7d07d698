"""A `foreachBatch` of one's own: one stream of payments, the payments in one table and their sums in another.

Each append is exactly once for itself, by the batch id as its version. The two tables do not change in one step: a
crash between them leaves the second one behind until the replay, and never doubles the first. Keep the checkpoint: a
new one counts from 0 again, and its batches would be taken for those that are in the tables. `lakesink.stream` knows
its query and refuses; an append knows its version only.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions

import lakesink

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need a Python that has lakesink


def write(payments: DataFrame, batch_id: int) -> None:
    """Called by Spark for every batch, and again for one that it does not know to be done."""
    lakesink.append(payments, "bank.payments", txn=("payments", batch_id), create_table=True)
    sums = payments.groupBy("account").agg(
        functions.sum("cents").alias("cents"), functions.count("*").alias("payments")
    )
    lakesink.append(sums, "bank.sums_by_batch", txn=("payments-sums", batch_id), create_table=True)


inbox = Path("payments")
spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2).getOrCreate()
spark.range(1000).selectExpr("id % 10 AS account", "id AS cents").write.mode("append").json(str(inbox))

arrived = spark.readStream.schema("account LONG, cents LONG").json(str(inbox))
query = arrived.writeStream.foreachBatch(write).option("checkpointLocation", "checkpoints/payments")
query.trigger(availableNow=True).start().awaitTermination()

for table in ("bank.payments", "bank.sums_by_batch"):
    records = lakesink.history(table)
    print(f"{table}: {len(records)} batches, {sum(record.rows for record in records)} rows")
