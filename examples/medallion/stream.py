"""Three tables, each a stream of the one before it: bronze has what Kafka sent, silver has orders, gold the large ones.

Run as ``python stream.py BOOTSTRAP_SERVERS JARS`` with the jars of Spark's Kafka source, in any folder. It reads what
has arrived, and ends.
"""

import os
import sys

from pyspark.sql import DataFrame, SparkSession

import lakesink

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need a Python that has lakesink
ORDERS = "order_id LONG, shop STRING, amount DECIMAL(12, 2)"


def write(rows: DataFrame, layer: str) -> None:
    """One stream into one table: everything that there is now."""
    writer = lakesink.stream(
        rows, f"{layer}.orders", sink_id=layer, checkpoint=f"checkpoints/{layer}", create_table=True, verbose=False
    )
    writer.trigger(availableNow=True).start().awaitTermination()


def main(bootstrap_servers: str, jars: str) -> None:
    """Bronze, silver and gold, one after the other."""
    spark = SparkSession.builder.master("local[2]").config("spark.jars", jars).getOrCreate()
    lakesink.register(spark)

    def batches(table: str) -> DataFrame:
        return spark.readStream.format("lakesink").option("table", table).load()

    kafka = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": "orders", "startingOffsets": "earliest"}
    sent = spark.readStream.format("kafka").options(**kafka, maxOffsetsPerTrigger="100").load()
    write(sent.selectExpr("partition", "offset", "CAST(value AS STRING) AS value"), "bronze")
    orders = batches("bronze.orders").selectExpr(f"from_json(value, '{ORDERS}') AS row").select("row.*")
    write(orders.where("order_id IS NOT NULL"), "silver")
    write(batches("silver.orders").where("amount >= 100"), "gold")


if __name__ == "__main__":
    main(*sys.argv[1:])
