"""An outbox goes on only behind the rows that it produced, and not behind others that end at the same offsets."""

from dataclasses import replace
from pathlib import Path

import pytest

from lakesink.read.begin import followed
from lakesink.read.follow import newest_shown, unread_batches
from lakesink.read.position import Position
from lakesink_catalog.snapshots import head_of
from lakesink_protocol.errors import CatalogError
from lakesink_tools.operate.outbox.position import Outbox, check_standing
from testkit.builders import TABLE, Lake, Stream


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(Lake.make(tmp_path)).filled(4)


def newest(stream: Stream) -> Position:
    table = stream.lake.table()
    found = newest_shown(table, TABLE, followed(table, TABLE, "", "main"), head_of(table, "main"))
    assert found is not None
    return found


def roll_back(stream: Stream, batch_id: int) -> None:
    snapshot_id = stream.snapshot_of(batch_id)
    stream.lake.table().manage_snapshots().set_current_snapshot(snapshot_id=snapshot_id).commit()


def left(stream: Stream, position: Position) -> list[int]:
    table = stream.lake.table()
    outbox = Outbox("outbox", TABLE, followed(table, TABLE, "", "main"))
    past, found = unread_batches(table, TABLE, outbox.sink, position, changes=True)
    check_standing(past, found, position, outbox)
    return [batch.batch_id for batch in found.batches]


def refusal(stream: Stream, position: Position) -> str:
    with pytest.raises(CatalogError) as refused:
        left(stream, position)
    assert "--id" in refused.value.action
    return refused.value.code


def test_a_table_that_was_rolled_back_behind_the_position_is_refused_until_the_batch_is_there_again(
    stream: Stream,
) -> None:
    position = newest(stream)
    roll_back(stream, 1)
    assert refusal(stream, position) == "LAKESINK_READ_ROLLED_BACK"
    stream.run(2)
    assert refusal(stream, position) == "LAKESINK_READ_ROLLED_BACK"
    stream.run(3)
    stream.run(4)
    assert left(stream, position) == [4]


def test_other_batches_that_end_at_the_same_offsets_are_refused(tmp_path: Path) -> None:
    stream = Stream(Lake.make(tmp_path))
    for number in range(4):
        stream.run(stream.of_kafka(number, number, number + 1))
    position = newest(stream)
    roll_back(stream, 1)
    stream.run(stream.of_kafka(2, 2, 4))
    stream.run(stream.of_kafka(3, 4, 5))
    assert refusal(stream, position) == "LAKESINK_READ_BATCH_CHANGED"


def test_the_beginning_and_an_expired_snapshot_under_the_head_are_known(stream: Stream) -> None:
    position = newest(stream)
    assert left(stream, position) == []
    stream.run(4)
    stream.run(5)
    old = [snapshot.snapshot_id for _, snapshot in stream.own_snapshots()[:4]]
    stream.lake.table().maintenance.expire_snapshots().by_ids(old).commit()
    assert left(stream, position) == [4, 5]
    before_all = Position(position.table, position.table_uuid, position.branch, position.sink)
    assert left(stream, before_all) == [0, 1, 2, 3, 4, 5]
    assert left(stream, replace(position, is_read=False)) == [3, 4, 5]
