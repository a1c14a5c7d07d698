"""Traces of Iceberg's own Spark sink: query id and epoch in the summary of each snapshot. Pure.

An epoch is Spark's batch id, and the query id is that of the checkpoint; offsets are not stored. That sink searches the
ancestry from the head for its last epoch. lakesink does the same, to take over a stream.
"""

from collections.abc import Iterable, Iterator

from lakesink_protocol.ledger import SnapshotLike, stated

QUERY_ID = "spark.sql.streaming.queryId"
EPOCH_ID = "spark.sql.streaming.epochId"


def epochs(snapshots: Iterable[SnapshotLike], query_id: str) -> Iterator[int]:
    """Epochs that Iceberg's own sink committed for a query, in the order of the snapshots.

    `query_id` is the id in the checkpoint's ``metadata``.
    """
    own = (one.summary for one in snapshots if query_id and one.summary and one.summary.get(QUERY_ID) == query_id)
    return (epoch for epoch in (stated(summary, EPOCH_ID) for summary in own) if epoch is not None)
