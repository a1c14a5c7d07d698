"""The one Spark session that all sinks of a run share, and the one catalog, which Spark and PyIceberg both open."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from servers.jars import ICEBERG_SPARK, KAFKA_SPARK, fetched

CATALOG = "lake"
CODEC, LEVEL = "zstd", 1
TABLE_PROPERTIES = {"write.parquet.compression-codec": CODEC, "write.parquet.compression-level": str(LEVEL)}
"""Of every table that is written, by whomever."""
_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def catalog_properties(folder: Path) -> dict[str, str]:
    """Of the catalog of a folder, as PyIceberg takes them."""
    return {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": f"file://{folder / 'warehouse'}"}


def iceberg_conf(folder: Path) -> dict[str, str]:
    """What makes a Spark session write Iceberg tables by itself, in the same catalog, and read from Kafka.

    All sessions of a process share a JVM, which finds no jars but those of its first session.
    """
    jars = (*fetched(ICEBERG_SPARK), *fetched(KAFKA_SPARK))
    own = f"spark.sql.catalog.{CATALOG}"
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": _EXTENSIONS,
        own: "org.apache.iceberg.spark.SparkCatalog",
        f"{own}.type": "jdbc",
        f"{own}.uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        f"{own}.warehouse": f"file://{folder / 'warehouse'}",
        f"{own}.jdbc.schema-version": "V1",
        f"{own}.cache-enabled": "false",
    }


def session(conf: Mapping[str, str] | None = None) -> SparkSession:
    """Two cores, and what all sinks have in common."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("lakesink bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.driver.maxResultSize": "0",  # the naive sink takes every batch into the driver
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # as Iceberg wants them
        "spark.hadoop.parquet.compression.codec.zstd.level": str(LEVEL),
        **(conf or {}),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
