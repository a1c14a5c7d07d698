"""What differs in a Spark Connect session, where the driver's JVM and its environment are out of reach."""

import os
from typing import Any

from pyspark.sql import SparkSession

from lakesink.spark.source.data_source import LakesinkDataSource
from lakesink_catalog.connect.catalog import HOME_VARIABLE, FoundCatalog, embedded_home
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.events import ServerUnchecked

_SESSION = "SPARK_JOB_ARTIFACT_UUID"
_NO_SESSION = "default"


def register(spark: SparkSession) -> None:
    """Register ``format("lakesink")`` with a session, for streams and batch writes.

    Where lakesink is installed by pip, Spark finds the format by itself. Call this if ``LAKESINK_HOME`` or the working
    folder changed after the session was started: this call also fixes the location of the embedded catalog. Without it,
    Spark's planners have the environment and the working folder with which the JVM was started, not those of this
    process. In a session of Spark Connect, they always have those of the server.

    Args:
        spark: A session, classic or of Spark Connect.
    """
    if is_of_connect(spark):
        spark.dataSource.register(LakesinkDataSource)
        LISTENERS(ServerUnchecked(spark.version))
        return
    environment = spark.sparkContext.environment
    before = environment.get(HOME_VARIABLE)
    environment[HOME_VARIABLE] = str(embedded_home())
    try:
        spark.dataSource.register(LakesinkDataSource)
    finally:
        environment.pop(HOME_VARIABLE)
        if before is not None:
            environment[HOME_VARIABLE] = before


def check_lasts(found: FoundCatalog) -> None:
    """Refuse a catalog in the working folder of a Connect session's Python: Spark deletes it with the session."""
    here = os.getcwd()  # noqa: PTH109 - as the catalog's paths were made absolute
    of_session = os.environ.get(_SESSION, _NO_SESSION) != _NO_SESSION
    if of_session and any(here in str(value) for value in found.properties.values()):
        raise CatalogError.of("CATALOG_TEMPORARY")


def is_of_connect(value: Any) -> bool:
    """True for sessions and DataFrames of Spark Connect, whose classes cannot be imported without its libraries."""
    return any(kind.__module__.startswith("pyspark.sql.connect") for kind in type(value).__mro__)
