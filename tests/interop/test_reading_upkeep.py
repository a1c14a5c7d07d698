"""What keeps the batches that a reader has not read, when Iceberg's procedures compact and expire all they may."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from lakesink.read.follow import commits_after, past_of
from lakesink.read.hold import set_hold
from lakesink_protocol.errors import CatalogError
from testkit.builders import SCHEMA, TABLE, Chance, Lake, Stream, counted, expected
from testkit.http_servers import skipped_where_missing
from tests.interop.upkeep import Upkeep, upkeep
from tests.read.consumer import EVENTS, Consumer

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, Upkeep]]:
    lake = Lake.make(tmp_path_factory.mktemp("kept"))
    with skipped_where_missing(), upkeep(lake) as spark:
        yield lake, spark


@pytest.fixture
def lake(kept: tuple[Lake, Upkeep]) -> Lake:
    lake, _ = kept
    lake.catalog.drop_table(TABLE)
    lake.create(SCHEMA, UNPARTITIONED_PARTITION_SPEC)
    return lake


@pytest.fixture
def by_spark(kept: tuple[Lake, Upkeep]) -> Upkeep:
    return kept[1]


def hold(lake: Lake, consumer: Consumer) -> None:
    """What the reader does when it plans a micro-batch."""
    assert consumer.position is not None
    table = lake.table()
    unread = commits_after(past_of(table, TABLE, EVENTS, consumer.position), EVENTS, consumer.position)
    assert set_hold(table, "silver", unread[-1].snapshot_id, len(unread)) == ""


def stream_into(lake: Lake, **options: Any) -> Stream:
    """A stream whose clock is not ahead of the one of Spark."""
    a_minute_ago = time.time_ns() // 1_000_000 - 60_000
    return Stream(lake, options=options, chance=Chance(itertools.count(a_minute_ago, 20)))


def one_read_and_three_unread(lake: Lake) -> tuple[Stream, Consumer]:
    stream, consumer = stream_into(lake), Consumer(lake)
    stream.run(0)
    assert consumer.poll() == [0]
    for batch in (1, 2, 3):
        stream.run(batch)
    return stream, consumer


def test_compaction_hides_nothing_and_repeats_nothing(lake: Lake, by_spark: Upkeep) -> None:
    stream, consumer = one_read_and_three_unread(lake)
    by_spark.compact()
    by_spark.rewrite_manifests()
    stream.run(4)
    assert consumer.poll() == [1, 2, 3, 4]
    by_spark.compact()
    assert consumer.poll() == []
    assert consumer.rows == expected(0, 1, 2, 3, 4) == counted(lake)


def test_expired_batches_are_read_from_their_live_files(lake: Lake, by_spark: Upkeep) -> None:
    stream, consumer = one_read_and_three_unread(lake)
    by_spark.rewrite_manifests()
    stream.run(4)
    by_spark.expire()
    assert len(lake.table().metadata.snapshots) == 1
    assert consumer.poll() == [1, 2, 3, 4]
    assert consumer.rows == expected(0, 1, 2, 3, 4) == counted(lake)


def test_without_a_hold_expired_and_compacted_batches_are_refused_by_name(lake: Lake, by_spark: Upkeep) -> None:
    _, consumer = one_read_and_three_unread(lake)
    by_spark.compact()
    by_spark.expire()
    with pytest.raises(CatalogError, match=r"\[LAKESINK_READ_BATCH_GONE\] Batch 1 "):
        consumer.poll()


def test_a_hold_keeps_batches_that_are_compacted_and_would_expire(lake: Lake, by_spark: Upkeep) -> None:
    _, consumer = one_read_and_three_unread(lake)
    hold(lake, consumer)
    by_spark.compact()
    by_spark.expire()
    assert consumer.poll() == [1, 2, 3]
    assert consumer.rows == expected(0, 1, 2, 3) == counted(lake)


def test_a_hold_does_not_keep_what_comes_later(lake: Lake, by_spark: Upkeep) -> None:
    stream, consumer = one_read_and_three_unread(lake)
    hold(lake, consumer)
    for batch in (4, 5):  # the newest one has the ledger's tag
        stream.run(batch)
    by_spark.compact()
    by_spark.expire()
    with pytest.raises(CatalogError, match=r"\[LAKESINK_READ_BATCH_GONE\] Batch 4 "):
        consumer.poll()


def test_a_tag_at_each_batch_keeps_what_comes_later_too(lake: Lake, by_spark: Upkeep) -> None:
    stream, consumer = stream_into(lake, tag_every=1), Consumer(lake)
    stream.run(0)
    assert consumer.poll() == [0]
    for batch in (1, 2, 3):
        stream.run(batch)
    by_spark.compact()
    by_spark.expire()
    assert consumer.poll() == [1, 2, 3]
    assert consumer.rows == expected(0, 1, 2, 3) == counted(lake)


def test_a_tag_at_the_position_keeps_nothing_that_is_unread(lake: Lake, by_spark: Upkeep) -> None:
    stream, consumer = one_read_and_three_unread(lake)
    lake.table().manage_snapshots().create_tag(stream.snapshot_of(0), "read").commit()
    by_spark.compact()
    by_spark.expire()
    with pytest.raises(CatalogError, match=r"\[LAKESINK_READ_BATCH_GONE\]"):
        consumer.poll()
