"""The application: Kafka's records into an Iceberg table. ``python -m examples.playground.driver HOME BOOTSTRAP``.

It is killed and started again, and knows nothing of that.
"""

import logging
import sys
from pathlib import Path

from pyspark.sql.functions import col, from_json

import lakesink
from lakesink_tools.demo.process import end_with_parent
from lakesink_tools.demo.session import quiet_session
from servers.jars import KAFKA_SPARK, fetched

from .setting import CATALOG, SINK_ID, TABLE, TOPIC, Folder


def main(folder: Folder, bootstrap: str) -> None:
    """Stream until the process is killed, or the stream fails."""
    end_with_parent()
    logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("lakesink").setLevel(logging.INFO)
    jars = {"spark.jars": ",".join(map(str, fetched(KAFKA_SPARK)))}
    spark = quiet_session("playground", folder.home / "spark", {"spark.sql.session.timeZone": "UTC", **jars})
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")  # of the first batch; from then on the checkpoint decides
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    event = from_json(col("value").cast("string"), "id LONG, at TIMESTAMP, amount DECIMAL(12, 2)")
    events = records.select(event.alias("event")).select("event.*")
    checkpoint = str(folder.checkpoint)
    writer = lakesink.stream(
        events,
        TABLE,
        sink_id=SINK_ID,
        checkpoint=checkpoint,
        catalog=CATALOG,
        create_table=True,
        partition_by="day(at)",
    )
    writer.trigger(processingTime="1 second").start().awaitTermination()


if __name__ == "__main__":
    main(Folder(Path(sys.argv[1])), sys.argv[2])
