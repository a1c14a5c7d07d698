"""A reader of a changelog: ``python -m tests.interop.changelog_reader CONFIG``, whose config is one step as JSON.

Rows are written as Parquet files: what Iceberg's streaming source has of a table since the last step, and what Spark's
changelog view of the table has.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from proof.drivers import session
from servers.jars import ICEBERG_SPARK, fetched

CATALOG = "test"


def stream(spark: SparkSession, table: str, checkpoint: str, into: str) -> None:
    """Write the rows that are new since the checkpoint, a snapshot a batch."""

    def write(rows: DataFrame, batch_id: int) -> None:
        rows.coalesce(1).write.mode("overwrite").parquet(f"{into}/{batch_id}")

    rows = spark.readStream.format("iceberg").option("streaming-max-files-per-micro-batch", 1).load(table)
    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def view(spark: SparkSession, table: str, into: str) -> None:
    """Write the rows of the changelog view, with what Spark says of each."""
    spark.sql(f"CALL {CATALOG}.system.create_changelog_view(table => '{table}', changelog_view => 'viewed')")
    spark.sql("SELECT * FROM viewed").coalesce(1).write.parquet(into)


def main(config: dict[str, Any]) -> None:
    """Take one step; prints what Spark says if it refuses to stream."""
    folder = Path(config["folder"])
    spark = session("local[2]", fetched(ICEBERG_SPARK), config["conf"], folder)
    table = f"{CATALOG}.{config['table']}"
    try:
        stream(spark, table, str(folder / "checkpoint"), str(folder / "streamed"))
        view(spark, table, str(folder / f"viewed-{config['step']}"))
    except Exception as error:  # noqa: BLE001 - the test judges what Spark says
        print(error)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
