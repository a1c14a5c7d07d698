"""Whose batches are read, and where a consumer without a position begins."""

from typing import Any

import pytest

from lakesink.read.begin import AtBatch, AtTime, Begin, beginning, followed
from lakesink.read.follow import newest_position, past_of
from lakesink.read.steps import Follows, SinkBatches, up_to
from lakesink_protocol.errors import CatalogError, SettingsError
from lakesink_protocol.identity import SinkKind
from testkit.builders import START_MS, TABLE, Lake, Stream
from testkit.maintenance import roll_back, upgrade
from tests.read.consumer import EVENTS, Consumer


def test_the_only_sink_of_a_branch_need_not_be_named(lake: Lake) -> None:
    with pytest.raises(SettingsError, match="LAKESINK_SINK_UNKNOWN"):
        followed(lake.table(), TABLE, "", "main")
    Stream(lake).run(0)
    Stream(lake, "app", kind=SinkKind.TXN).run(1)
    assert followed(lake.table(), TABLE, "", "main") == EVENTS
    Stream(lake, "other").run(0)
    with pytest.raises(SettingsError, match=r"LAKESINK_SINK_AMBIGUOUS.*events, other"):
        followed(lake.table(), TABLE, "", "main")
    assert followed(lake.table(), TABLE, "other", "main").sink == "other"
    for name, branch in (("app", "main"), ("events", "audit")):
        with pytest.raises(SettingsError, match="LAKESINK_SINK_UNKNOWN"):
            followed(lake.table(), TABLE, name, branch)


def test_a_changelog_is_read_by_the_sink_whose_changes_it_has(lake: Lake) -> None:
    first = Stream(lake, "orders.changelog.0123456789ab", kind=SinkKind.TXN)
    first.run(0)
    first.run(4)
    wanted = SinkBatches("orders", "main", Follows.CHANGELOG)
    assert followed(lake.table(), TABLE, "", "main") == wanted
    consumer = Consumer(lake, wanted)
    assert consumer.poll() == [0, 4]
    of_next_query = Stream(lake, "orders.changelog.ba9876543210", kind=SinkKind.TXN)
    of_next_query.run(2)
    assert consumer.poll() == [2]
    assert sum(consumer.rows.values()) == 9


def test_a_consumer_begins_at_a_batch_at_a_time_or_at_an_end(lake: Lake) -> None:
    stream = Stream(lake).filled(4)
    times = [snapshot.timestamp_ms for _, snapshot in stream.own_snapshots()]
    cases: list[tuple[Any, list[int]]] = [
        (Begin.EARLIEST, [0, 1, 2, 3]),
        (Begin.LATEST, []),
        (AtBatch(0), [0, 1, 2, 3]),
        (AtBatch(2), [2, 3]),
        (AtTime(START_MS - 1), [0, 1, 2, 3]),
        (AtTime(times[2]), [2, 3]),
        (AtTime(times[2] + 1), [3]),
        (AtTime(times[3] + 1), []),
    ]
    for begin, batches in cases:
        position = beginning(lake.table(), TABLE, EVENTS, begin)
        assert Consumer(lake, position=position).poll() == batches, begin
    with pytest.raises(SettingsError, match=r"LAKESINK_OPTION_INVALID.*shows batches 0 to 3"):
        beginning(lake.table(), TABLE, EVENTS, AtBatch(9))


def test_the_newest_position_does_not_go_back_with_a_rollback(lake: Lake) -> None:
    stream = Stream(lake)
    assert newest_position(lake.table(), TABLE, EVENTS).is_before_all
    stream.filled(3)
    newest = newest_position(lake.table(), TABLE, EVENTS)
    assert (newest.batch_id, newest.snapshot_id) == (2, stream.snapshot_of(2))
    roll_back(lake, stream.snapshot_of(0))
    assert newest_position(lake.table(), TABLE, EVENTS) == newest


def test_limits_take_whole_batches_and_at_least_one(lake: Lake) -> None:
    Stream(lake).filled(4)
    consumer = Consumer(lake)
    consumer.poll()
    every = EVENTS.of(past_of(lake.table(), TABLE, EVENTS, None))
    cases = [((None, None), 4), ((1, None), 1), ((9, None), 4), ((None, 1), 1), ((None, 7), 2), ((3, 100), 3)]
    for (batches, rows), count in cases:
        assert [batch.batch_id for batch in up_to(every, batches, rows)] == list(range(count))
    assert list(up_to((), 1, 1)) == []


def test_format_version_3_is_refused_by_name(lake: Lake) -> None:
    Stream(lake).run(0)
    upgrade(lake)
    with pytest.raises(CatalogError, match=r"LAKESINK_UNSUPPORTED.*format version 3"):
        followed(lake.table(), TABLE, "events", "main")
