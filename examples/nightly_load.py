"""A batch job that may run twice for the same night, because a scheduler retried it, and writes that night once.

The version must grow from one run to the next: a date as a number does.
"""

import os
import sys

from pyspark.sql import SparkSession

import lakesink

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need a Python that has lakesink

spark = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", "false").getOrCreate()

for night in (20260130, 20260131, 20260131):
    sales = spark.range(1000).selectExpr("id AS sale", "id % 7 AS shop", f"{night} AS night")
    outcome = lakesink.append(
        sales, "shop.sales", txn=("nightly-load", night), create_table=True, partition_by="bucket(4, shop)"
    )
    match outcome:
        case lakesink.Committed(rows=rows):
            print(f"{night}: {rows} rows committed")
        case lakesink.AlreadyCommitted():
            print(f"{night}: already in the table, nothing done")

print(f"{sum(record.rows for record in lakesink.history('shop.sales'))} sales")
