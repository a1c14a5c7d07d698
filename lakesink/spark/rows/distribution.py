"""Shuffles rows by partition values, as ``write.distribution-mode`` asks: one task gets all rows of a partition.

Spark has Iceberg's transforms only with Iceberg's jar. So each transform becomes a Spark expression that is equal for
all rows of a partition. ``bucket`` has no such expression: rows are not shuffled by its fields.
"""

import re
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, DateType, IntegralType, StringType, StructType, TimestampNTZType, TimestampType

from lakesink_protocol.two_phase import ClusteredBy

_TRUNCATE = re.compile(r"truncate\[(\d+)\]")
_HOUR_MICROS, _DAY_HOURS = 3_600_000_000, 24


def distributed(rows: DataFrame, clustered_by: ClusteredBy, names: Sequence[str] | None = None) -> DataFrame:
    """The rows, shuffled by partition if possible; `names` are the columns' names in `clustered_by` if they differ."""
    if not clustered_by:
        return rows
    found = (
        partition_expression(rows, _path_in_rows(rows, path, names), transform) for path, transform in clustered_by
    )
    expressions = [expression for expression in found if expression is not None]
    if not expressions:
        return rows
    session = rows.sparkSession
    most = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
    # As many tasks as run at once: each Python task has a cost, and Spark's default is 200.
    tasks = max(1, min(most, session.sparkContext.defaultParallelism))
    return rows.repartition(tasks, *expressions)


def _path_in_rows(rows: DataFrame, path: Sequence[str], names: Sequence[str] | None) -> Sequence[str]:
    """The path with the names of the rows' columns; empty unless exactly one column matches."""
    if names is None:
        return path
    known = [column for column, name in zip(rows.columns, names, strict=True) if name.lower() == path[0].lower()]
    return [known[0], *path[1:]] if len(known) == 1 else ()


def partition_expression(rows: DataFrame, path: Sequence[str], transform: str) -> Column | None:
    """An expression that is equal for rows of the same partition; None if there is none."""
    kind = _type_of(rows.schema, path) if path else None
    if kind is None:
        return None
    column = sf.col(".".join(f"`{name.replace('`', '``')}`" for name in path))
    if transform == "identity":
        return column
    truncate = _TRUNCATE.fullmatch(transform)
    if truncate:
        return _truncated(column, kind, int(truncate[1]))
    return _period(column, kind, transform)


def _type_of(schema: StructType, path: Sequence[str]) -> DataType | None:
    kind: DataType = schema
    for name in path:
        fields = kind.fields if isinstance(kind, StructType) else []
        found = [field.dataType for field in fields if field.name.lower() == name.lower()]
        if len(found) != 1:
            return None
        kind = found[0]
    return kind


def _truncated(column: Column, kind: DataType, width: int) -> Column | None:
    if isinstance(kind, IntegralType):
        return _rounded_down(column, width)
    return sf.substring(column, 1, width) if isinstance(kind, StringType) else None


def _period(column: Column, kind: DataType, period: str) -> Column | None:
    hours = _hours(column, kind)
    if hours is None or period not in ("hour", "day", "month", "year"):
        return None
    if period == "hour":
        return hours
    days = _floor_divided(hours, _DAY_HOURS)
    if period == "day":
        return days
    date = sf.date_from_unix_date(days.cast("int"))
    return sf.year(date) if period == "year" else sf.year(date) * 12 + sf.month(date)


def _hours(column: Column, kind: DataType) -> Column | None:
    """Hours since 1970 in UTC, independent of the session's time zone."""
    if isinstance(kind, DateType):
        return sf.unix_date(column).cast("long") * _DAY_HOURS
    if isinstance(kind, TimestampNTZType):
        return sf.unix_date(column.cast("date")).cast("long") * _DAY_HOURS + sf.hour(column)
    return _floor_divided(sf.unix_micros(column), _HOUR_MICROS) if isinstance(kind, TimestampType) else None


def _floor_divided(number: Column, by: int) -> Column:
    return _rounded_down(number, by) / by


def _rounded_down(number: Column, multiple: int) -> Column:
    """Round down to a multiple. NULL near a type's minimum, where no multiple exists and Spark's minus would fail."""
    return sf.try_subtract(number, sf.pmod(number, sf.lit(multiple)))
