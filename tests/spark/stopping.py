"""A driver of its own that stops its query in the middle of a batch; what Spark says meanwhile is on its stderr.

Run as ``python -m tests.spark.stopping FOLDER``; prints the query's exception and the batches in the sink.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.directory_sink import DirectorySink
from tests.spark.streams import file_stream, write_files, writer


def main(folder: Path) -> None:
    busy = folder / "busy"

    def held(_: int) -> int:
        busy.touch()
        while True:
            time.sleep(0.05)

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.udf.register("held", held, "long")
    write_files(folder / "in", 1)
    sink = DirectorySink(folder / "sink")
    rows = file_stream(spark, folder / "in").selectExpr("held(id) as id")
    query = writer(rows, sink, folder / "ck").start()
    while not busy.exists():
        time.sleep(0.05)
    query.stop()
    print(json.dumps({"exception": str(query.exception()), "batches": sink.batches()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
