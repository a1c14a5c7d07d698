"""What the writer must know of a DataFrame and its session."""

import inspect
import json
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from lakesink.sinks.planning import SessionFacts
from lakesink_catalog.errors import WriteError


def schema_json(rows: DataFrame) -> dict[str, Any]:
    """Schema of a DataFrame as Spark's JSON, parsed."""
    parsed: dict[str, Any] = json.loads(rows.schema.json())
    return parsed


def arrow_schema(schema: StructType, *, large: bool = False) -> pa.Schema:
    """Schema of a DataFrame as its rows arrive in Arrow; zoned timestamps in UTC.

    Args:
        schema: Schema of the DataFrame.
        large: True for texts and bytes by offsets of 64 bits.

    Raises:
        WriteError: A column has a type that Spark does not hand to Arrow.
    """
    zoned: dict[str, Any] = (
        {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    )  # 4.3 wants it
    try:
        return to_arrow_schema(schema, prefers_large_types=large, **zoned)
    except PySparkException as error:
        raise WriteError(
            "TYPE_UNSUPPORTED",
            f"A column has a type that Spark cannot hand to Arrow: {error.getMessage()}",
            data="Nothing was written.",
            action="Cast the column to a type that Iceberg has, or leave it out.",
        ) from None


def session_facts(session: SparkSession) -> SessionFacts:
    """What tasks must know of the session."""
    return SessionFacts(case_sensitive=str(session.conf.get("spark.sql.caseSensitive")).lower() == "true")
