"""Traces of Iceberg's own Spark sink: query id and epoch in the summary of each snapshot. Pure.

An epoch is Spark's batch id, and the query id is that of the checkpoint; offsets are not stored. That sink searches the
ancestry from the head for its last epoch. lakesink does the same, to take over a stream.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lakesink_protocol.ledger import SnapshotLike, stated

QUERY_ID = "spark.sql.streaming.queryId"
EPOCH_ID = "spark.sql.streaming.epochId"


def epoch_of(summary: Mapping[str, Any] | None) -> tuple[str, int] | None:
    """Query id and epoch in a snapshot's summary; None if Iceberg's own sink did not write it."""
    query_id, epoch = (summary.get(QUERY_ID), stated(summary, EPOCH_ID)) if summary else (None, None)
    return (query_id, epoch) if isinstance(query_id, str) and query_id and epoch is not None else None


def epochs(snapshots: Iterable[SnapshotLike], query_id: str) -> Iterator[int]:
    """Epochs that Iceberg's own sink committed for a query, in the order of the snapshots.

    `query_id` is the id in the checkpoint's ``metadata``.
    """
    written = (epoch_of(one.summary) for one in snapshots)
    return (found[1] for found in written if found is not None and found[0] == query_id)
