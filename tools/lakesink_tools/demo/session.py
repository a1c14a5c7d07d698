"""Spark sessions for short runs on one machine."""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession


def quiet_session(name: str, folder: Path, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session on two cores that starts fast, prints nothing and opens no port to other machines."""
    builder = (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # short runs: start fast
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder))
    )
    session = builder.config(map=dict(conf or {})).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
