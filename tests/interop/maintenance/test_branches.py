"""A stream writes to a branch, and Spark publishes it by moving main forward."""

import pytest

from lakesink_protocol.outcome import AlreadyCommitted, Committed
from servers.spark_sql import SparkFailed
from testkit.builders import TABLE, counted, expected
from testkit.maintenance import append_foreign, branch_off
from tests.interop.maintenance.lake import Lake
from tests.interop.maintenance.plain import plain_stream
from tests.interop.readers.engines import CATALOG

pytestmark = pytest.mark.interop


def test_main_is_moved_forward_to_the_branch_of_a_stream(lake: Lake) -> None:
    with plain_stream(lake) as stream:
        theirs = append_foreign(stream.lake)
        branch_off(stream.lake, "staged")
        stream.branch = "staged"
        for batch_id in range(2):
            stream.run(batch_id)
        publish(lake)
        assert counted(stream.lake) == expected(0, 1) + theirs

        assert isinstance(stream.run(1), AlreadyCommitted)
        assert isinstance(stream.run(2), Committed)
        assert counted(stream.lake) == expected(0, 1) + theirs
        publish(lake)
        assert counted(stream.lake) == expected(0, 1, 2) + theirs
        assert lake.asked("audit", TABLE)["findings"] == []


def test_main_that_others_wrote_to_is_not_moved(lake: Lake) -> None:
    with plain_stream(lake) as stream:
        append_foreign(stream.lake)
        branch_off(stream.lake, "staged")
        stream.branch = "staged"
        stream.run(0)
        lake.trino.sql(f"INSERT INTO {CATALOG}.{TABLE} VALUES (-1, 0, 0)")
        with pytest.raises(SparkFailed, match="is not an ancestor of staged"):
            publish(lake)
        assert isinstance(stream.run(1), Committed)


def test_main_is_not_moved_over_snapshots_that_have_expired(lake: Lake) -> None:
    with plain_stream(lake) as stream:
        append_foreign(stream.lake)
        branch_off(stream.lake, "staged")
        stream.branch = "staged"
        for batch_id in range(2):
            stream.run(batch_id)
        lake.call("expire_snapshots", TABLE, older_than="TIMESTAMP '2100-01-01'")
        with pytest.raises(SparkFailed, match="is not an ancestor of staged"):
            publish(lake)


def publish(lake: Lake) -> None:
    lake.call("fast_forward", TABLE, branch="'main'", to="'staged'")
