"""The application: two queries over one topic. This is what to copy; everything else here feeds, kills and checks it.

Each query has a checkpoint and a sink id of its own. So each goes on by itself after any crash, and neither can write
anything twice, whatever becomes of the other.
"""

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json, window
from pyspark.sql.functions import sum as total
from pyspark.sql.streaming.query import StreamingQuery

import lakesink
from lakesink_catalog.connect import EMBEDDED_NAME, connect
from lakesink_catalog.tables import create_table

EVENTS, DEPARTURES = "demo.events", "demo.departures_by_hour"
CATALOG = EMBEDDED_NAME  # or the name of one in PyIceberg's configuration
TOPIC = "departures"
WATERMARK_DELAY = "3 days"
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("departed_at", pa.timestamp("us", "UTC")),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("delay", pa.int32()),
    ]
)
KAFKA_COLUMNS = pa.schema([("_kafka_partition", pa.int32()), ("_kafka_offset", pa.int64())])


def from_kafka(spark: SparkSession, bootstrap: str, records_per_batch: int) -> DataFrame:
    """The topic's committed records: `read_committed`, for by default Spark reads what was aborted too."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")  # of the first batch; from then on the checkpoint decides
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", records_per_batch)
        .load()
    )


def from_files(spark: SparkSession, inbox: Path, files_per_batch: int) -> DataFrame:
    """The same records from files that arrive in a folder: a column `value` with one event a row."""
    return spark.readStream.format("text").option("maxFilesPerTrigger", files_per_batch).load(str(inbox))


def keep_events(records: DataFrame, checkpoints: Path) -> StreamingQuery:
    """Query one: every event as it came, decoded by the executors, with its place in Kafka if it has one."""
    places = list(KAFKA_COLUMNS) if "offset" in records.columns else []
    create_table(connect(CATALOG), EVENTS, pa.schema([*COLUMNS, *places]), partition_by="month(departed_at)")
    return lakesink.stream(
        records, EVENTS, sink_id="events", checkpoint=checkpoints / "events", catalog=CATALOG, decode="json"
    ).start()


def count_departures(records: DataFrame, checkpoints: Path) -> StreamingQuery:
    """Query two: departures by hour and airport; an hour is written once, when the watermark has passed its end."""
    event = from_json(col("value").cast("string"), "departed_at TIMESTAMP, origin STRING, delay INT")
    hours = (
        records.select(event.alias("event"))
        .select("event.*")
        .withWatermark("departed_at", WATERMARK_DELAY)
        .groupBy(window("departed_at", "1 hour"), "origin")
        .agg(count("*").alias("departures"), total("delay").alias("delay_minutes"))
        .select(col("window.start").alias("hour"), "origin", "departures", "delay_minutes")
    )
    return lakesink.stream(
        hours,
        DEPARTURES,
        sink_id="departures-by-hour",
        checkpoint=checkpoints / "departures_by_hour",
        catalog=CATALOG,
        create_table=True,
    ).start()
