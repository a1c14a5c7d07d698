"""The Spark driver of the demo, in a process of its own that can be killed.

Run as ``python -m lakesink_tools.demo.driver FOLDER FILES_PER_BATCH``, with the embedded catalog of ``LAKESINK_HOME``.
"""

import logging
import sys
from pathlib import Path

import lakesink
from lakesink_catalog.connect.catalog import EMBEDDED_NAME
from lakesink_tools.demo.flights import SPARK_SCHEMA
from lakesink_tools.demo.place import SINK_ID, TABLE, Place
from lakesink_tools.demo.process import end_with_parent
from lakesink_tools.demo.session import quiet_session


def main(folder: Path, files_per_batch: int) -> None:
    """Stream all existing files of the demo's folder, then end."""
    logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("lakesink").setLevel(logging.INFO)
    end_with_parent()
    place = Place(folder)
    spark = quiet_session("lakesink-demo", place.home / "spark")
    flights = (
        spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", files_per_batch).parquet(str(place.days))
    )
    query = (
        lakesink.stream(
            flights,
            TABLE,
            sink_id=SINK_ID,
            checkpoint=place.checkpoint,
            catalog=EMBEDDED_NAME,
            create_table=True,
            partition_by="month(time_hour)",
        )
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
