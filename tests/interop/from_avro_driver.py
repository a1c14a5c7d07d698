"""Spark's `from_avro` over messages of many schemas, in a process of its own, for it needs a package in the JVM.

Run as ``python from_avro_driver.py IN OUT``: IN is JSON, a list of a schema and its messages' bodies in Base64; OUT is
what they were read as, pickled.
"""

import pickle
import sys
from base64 import b64decode
from json import dumps, loads
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro

CONF = {
    "spark.master": "local[1]",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
}


def main(given: Path, found: Path) -> None:
    builder = SparkSession.builder
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    read = []
    for schema, bodies in loads(given.read_text()):
        rows = [(number, bytearray(b64decode(body))) for number, body in enumerate(bodies)]
        frame = spark.createDataFrame(rows, "number int, body binary").coalesce(1)
        record = from_avro("body", dumps(schema), {"mode": "PERMISSIVE"}).alias("row")
        read.append([row_of(row) for row in frame.select(record).toArrow()["row"]])
    found.write_bytes(pickle.dumps(read))


def row_of(row: Any) -> Any:
    try:
        return row.as_py(maps_as_pydicts="lossy")
    except UnicodeDecodeError:
        return "no text"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
