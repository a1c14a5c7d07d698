"""Spark or Trino expires all that may expire: the stream goes on, and a replay is recognised."""

from collections import Counter

import pytest

from lakesink_protocol.ledger import mark_of
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import TABLE, Stream, counted, expected
from tests.interop.maintenance.lake import Lake
from tests.interop.maintenance.plain import plain_stream
from tests.interop.readers.engines import CATALOG

pytestmark = pytest.mark.interop
THEIRS = Counter({(-1, 0): 1})


@pytest.mark.parametrize("ledger_tag", [True, False])
@pytest.mark.parametrize("by", ["spark", "trino"])
def test_a_replay_is_recognised_when_the_streams_snapshots_have_expired(
    lake: Lake,
    by: str,
    ledger_tag: bool,  # noqa: FBT001 - a case
) -> None:
    """With the tag the last batch's snapshot is kept; without it nothing but the table property tells of it."""
    with plain_stream(lake, ledger_tag=ledger_tag) as stream:
        stream.filled(4)
        insert_and_expire(lake, by)
        assert kept(stream) == ([3] if ledger_tag else [])
        assert isinstance(stream.run(3), AlreadyCommitted)
        outcome = stream.run(4)
        assert isinstance(outcome, Committed)
        assert counted(stream.lake) == expected(*range(5)) + THEIRS
        assert lake.asked("audit", TABLE)["findings"] == []


def insert_and_expire(lake: Lake, by: str) -> None:
    """The head is another's, then the rest goes."""
    statement = f"INSERT INTO {CATALOG}.{TABLE} VALUES (-1, 0, 0)"
    if by == "spark":
        lake.spark.sql(statement)
        lake.call("expire_snapshots", TABLE, older_than="TIMESTAMP '2100-01-01'")
    else:
        lake.trino.sql(statement)
        lake.execute("expire_snapshots(retention_threshold => '0s')", TABLE)


def kept(stream: Stream) -> list[int]:
    """Batches whose snapshots are in the table's metadata."""
    marks = (mark_of(snapshot.summary) for snapshot in stream.lake.table().metadata.snapshots)
    return [mark.batch_id for mark in marks if mark is not None]
