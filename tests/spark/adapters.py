"""The two ways of a stream into a table, so that a test can go both: `lakesink.stream`, and ``format("lakesink")``."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakesink
from lakesink.spark.source.data_source import LakesinkDataSource
from lakesink_catalog.connect.catalog import EMBEDDED_NAME, HOME_VARIABLE
from lakesink_catalog.failpoints import VARIABLE

Adapter = Callable[..., DataStreamWriter]


def by_foreach_batch(rows: DataFrame, table: str, **options: Any) -> DataStreamWriter:
    return lakesink.stream(rows, table, **options)


def by_format(rows: DataFrame, table: str, **options: Any) -> DataStreamWriter:
    """The same options in Spark's spelling, into the same catalog; failpoints that are armed now are armed there."""
    armed = {VARIABLE: os.environ[VARIABLE]} if VARIABLE in os.environ else {}
    with environment_of_workers(rows.sparkSession, armed):
        rows.sparkSession.dataSource.register(LakesinkDataSource)
    checkpoint = options.pop("checkpoint")
    place = checkpoint if "://" in str(checkpoint) else os.path.abspath(checkpoint)  # noqa: PTH100 - as the JVM does
    return rows.writeStream.format("lakesink").options(
        **(embedded_catalog() | spelled(options) | {"table": table, "checkpointLocation": place})
    )


def spelled(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as a format of Spark takes them: a mapping is JSON."""
    texts = {name: json.dumps(one) if isinstance(one, Mapping) else str(one) for name, one in options.items()}
    return {name.replace("_", "-"): text for name, text in texts.items()}


ADAPTERS: dict[str, Adapter] = {"stream": by_foreach_batch, "format": by_format}


def embedded_catalog() -> dict[str, str]:
    """The embedded catalog of the test, named by options: planners do not see the environment of a test."""
    home = Path(os.environ[HOME_VARIABLE])
    (home / "warehouse").mkdir(parents=True, exist_ok=True)
    uri, warehouse = f"sqlite:///{home}/catalog.db", f"file://{home}/warehouse"
    return {"catalog": EMBEDDED_NAME, "catalog.type": "sql", "catalog.uri": uri, "catalog.warehouse": warehouse}


@contextmanager
def environment_of_workers(spark: Any, added: Mapping[str, str]) -> Iterator[None]:
    """What is registered meanwhile runs in Python processes with these variables."""
    environment = spark.sparkContext.environment
    before = dict(environment)
    environment.update(added)
    try:
        yield
    finally:
        environment.clear()
        environment.update(before)
