"""What engines get wrong or refuse by themselves, as narrowly as it can be said: found beside lakesink's tables.

Each is asserted where it shows, so that an engine that has mended it is noticed.
"""

import math
from collections.abc import Callable, Mapping
from datetime import time
from typing import Any

from pyiceberg.schema import Schema

from tests.readers.known_bugs import lists_of_structs_are_never_null

Row = dict[str, Any]

REFUSED: Mapping[tuple[str, str], str] = {
    ("spark", "times"): "Spark does not support time fields",
    # Iceberg's Java library, 1.9.1 to 1.12.0, loses its place in a manifest behind a partition by `fixed`.
    ("spark", "by_fixed"): "Invalid int encoding",
    ("trino", "by_fixed"): "Invalid int encoding",
    ("flink", "by_fixed"): "Invalid int encoding",
    # Flink hands files to its readers as JSON, which it cannot read back.
    ("flink", "by_floats"): "Cannot parse default as a float value",
    ("flink", "by_void"): "Invalid partition data from content file",
}
"""Engine and table, and words of the refusal."""


def _without_infinities(row: Row) -> Row:
    """Trino 476 shows a partition by an infinity, or by a negative zero, as zero."""
    return row | {name: _plain(row[name]) for name in ("c_float", "c_double")}


def _plain(value: float | None) -> float | None:
    return 0.0 if value is not None and (math.isinf(value) or value == 0) else value


def _whole_seconds(row: Row) -> Row:
    """Flink's Iceberg has times to the second."""
    found = row["c_time"]
    return row | {"c_time": found.replace(microsecond=0) if isinstance(found, time) else None}


MISREAD: Mapping[tuple[str, str], Callable[[Row], Row]] = {
    ("trino", "by_floats"): _without_infinities,
    ("flink", "times"): _whole_seconds,
}
"""Engine and table, and what a row comes to."""


def as_read(engine: str, table: str, rows: list[Row], schema: Schema) -> list[Row]:
    """Rows in the forms of Arrow's `to_pylist`, as this engine is known to read them."""
    if engine == "pyiceberg":
        struct = schema.as_struct()
        return [lists_of_structs_are_never_null(struct, row) for row in rows]
    change = MISREAD.get((engine, table))
    return rows if change is None else [change(row) for row in rows]


def skipped_wrongly(engine: str, column: str, value: Any, condition: str) -> bool:
    """Rows and conditions of which Iceberg's Java library, in Spark and Flink, skips what the engine would have found.

    It orders -0.0 below 0.0, where they are equal to the engine; takes files of NaN alone for files without numbers,
    where NaN is the largest number to Spark; and takes the high half of all UUIDs for the low one.
    """
    if engine not in ("spark", "flink"):
        return False
    if isinstance(value, float):
        return math.isnan(value) or (value == 0 and math.copysign(1, value) < 0)
    return engine == "spark" and column == "c_uuid" and ("<" in condition or ">" in condition)
