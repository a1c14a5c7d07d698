"""Decides whether the driver writes a batch itself: the Python job is the largest cost of a tiny batch.

The batch must be *known* to be small before it is read: its sources count rows in their offsets, the query only drops
rows, and the width of rows was measured. File sizes are not enough: a few kilobytes of Parquet can contain any number
of rows. If rows are far wider than before, Spark's limit on results fails the batch. After the restart no row was
measured, so the executors write it. This module reads only a plan.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from lakesink.checkpoint.offsets import is_kafka_offset, partitions
from lakesink.spark.query import items
from lakesink.spark.query_plan import plan_of

MOST_ROWS = 10_000
MOST_BYTES = 16 * 1024 * 1024
HEADROOM = 16
"""Rows may be this many times wider than the widest measured ones before the driver gathers more than `MOST_BYTES`."""

_COUNTING_SOURCES = frozenset({"kafka", "rate-micro-batch"})
_KEEP_OR_DROP_ROWS = frozenset({"EventTimeWatermark", "Filter", "Project", "StreamingRelationV2", "SubqueryAlias"})


def only_drops_rows(rows: DataFrame) -> bool:
    """True if no row of the sources can become more than one row, by the nodes of the DataFrame's plan."""
    nodes = [plan_of(rows)]
    while len(nodes) == 1 and str(nodes[0].getClass().getSimpleName()) in _KEEP_OR_DROP_ROWS:
        nodes = items(nodes[0].children())
    return not nodes


def most_rows(sources: Sequence[str], start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> int | None:
    """Most rows that the sources can return for a batch; None if their offsets do not show it."""
    if start is None or len(sources) != len(end) or not _COUNTING_SOURCES.issuperset(sources):
        return None
    counts = [rows_between(start.get(source), after) for source, after in end.items()]
    return None if None in counts else sum(count for count in counts if count is not None)


def driver_may_write(rows: int | None, widest_row_bytes: int) -> bool:
    """True if a batch is known to be small enough to be gathered in the driver; `rows` is from `most_rows`."""
    return (
        rows is not None
        and rows <= MOST_ROWS
        and widest_row_bytes > 0
        and rows * widest_row_bytes * HEADROOM <= MOST_BYTES
    )


def rows_between(before: Any, after: Any) -> int | None:
    """Difference of Kafka's offsets by topic and partition, or of a counter; a new partition counts from zero."""
    if isinstance(after, Mapping) and isinstance(after.get("offset"), int):
        known = before.get("offset") if isinstance(before, Mapping) else None
        return after["offset"] - known if isinstance(known, int) else None
    if not (is_kafka_offset(before) and is_kafka_offset(after)):
        return None
    rows, starts = 0, partitions(before)
    for place, end in partitions(after).items():
        start = starts.get(place, 0)
        rows += end - start if end >= start else end  # a decreased offset means a recreated topic
    return rows
