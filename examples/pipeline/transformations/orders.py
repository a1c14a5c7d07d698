"""Two flows into one table. Each flow has a sink of its own, because a sink id belongs to one query for life."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
SCHEMA = "order_id LONG, place STRING, cents LONG, at TIMESTAMP"

for place in ("web", "shops"):
    options = {"table": "shop.orders", "sink-id": place, "create-table": "true", "partition-by": "day(at)"}
    dp.create_sink(place, format="lakesink", options=options)


@dp.append_flow(target="web")
def web_orders() -> DataFrame:
    """Orders of the web shop."""
    return spark.readStream.schema(SCHEMA).json("inbox/web")


@dp.append_flow(target="shops")
def shop_orders() -> DataFrame:
    """Orders of the shops in town."""
    return spark.readStream.schema(SCHEMA).json("inbox/shops")
