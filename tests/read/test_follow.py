"""A consumer gets every batch of a sink once, whatever upkeep and operators do to the table in between."""

from collections.abc import Callable
from typing import Any

import pytest

from lakesink.read.begin import AtBatch, beginning
from lakesink.read.follow import newest_position
from lakesink.read.position import Position, parse_offset
from lakesink.read.steps import SinkBatches
from lakesink_protocol.errors import CatalogError, QueryError, SettingsError
from lakesink_protocol.identity import Batch, SinkKind, stream_batch
from testkit.builders import TABLE, Lake, Stream, expected
from testkit.maintenance import (
    append_foreign,
    branch_off,
    edit_metadata,
    expire,
    expire_like_java,
    replace_table,
    rewrite,
    roll_back,
    set_property,
    sweep,
)
from tests.audit.deletes import delete_by_position
from tests.read.consumer import EVENTS, Consumer

EXPIRIES = pytest.mark.parametrize("expires", [expire, expire_like_java], ids=["PyIceberg", "Java"])


@pytest.fixture
def stream(lake: Lake) -> Stream:
    return Stream(lake)


@pytest.fixture
def consumer(lake: Lake) -> Consumer:
    return Consumer(lake)


def write(stream: Stream, *batches: int) -> None:
    for batch in batches:
        stream.run(batch)


def compact(lake: Lake) -> None:
    """Write all rows into a new file by snapshots of a compaction, which PyIceberg cannot make."""
    before = {snapshot.snapshot_id for snapshot in lake.table().metadata.snapshots}
    rewrite(lake)

    def as_replace(metadata: dict[str, Any]) -> None:
        for snapshot in metadata["snapshots"]:
            if snapshot["snapshot-id"] not in before:
                snapshot["summary"]["operation"] = "replace"

    edit_metadata(lake, as_replace)


def refusal(consumer: Consumer) -> str:
    with pytest.raises(CatalogError) as raised:
        consumer.poll()
    return str(raised.value)


def test_every_batch_is_read_once_in_order(stream: Stream, consumer: Consumer) -> None:
    assert consumer.poll() == []
    write(stream, 0, 1)
    assert consumer.poll() == [0, 1]
    assert consumer.poll() == []
    write(stream, 2)
    assert consumer.poll() == [2]
    assert consumer.rows == expected(0, 1, 2)


def test_a_batch_without_rows_is_a_batch(stream: Stream, consumer: Consumer) -> None:
    write(stream, 0)
    stream.run(1, rows=0)
    assert consumer.poll() == [0, 1]
    assert consumer.rows == expected(0)


def test_rows_of_other_writers_are_not_the_sinks_and_are_counted(lake: Lake, stream: Stream) -> None:
    write(stream, 0)
    append_foreign(lake)
    Stream(lake, "other").run(0)
    Stream(lake, "app", kind=SinkKind.TXN).run(5)
    write(stream, 1)
    consumer = Consumer(lake)
    assert consumer.poll() == [0, 1]
    assert consumer.rows == expected(0, 1)
    assert Consumer(lake, SinkBatches("other", "main")).poll() == [0]


def test_compacted_rows_are_not_read_again(lake: Lake, stream: Stream, consumer: Consumer) -> None:
    write(stream, 0, 1)
    assert consumer.poll() == [0, 1]
    compact(lake)
    assert consumer.poll() == []
    write(stream, 2)
    assert consumer.poll() == [2]
    assert consumer.rows == expected(0, 1, 2)


def test_unread_batches_that_were_compacted_are_read_from_their_own_files(
    lake: Lake, stream: Stream, consumer: Consumer
) -> None:
    write(stream, 0, 1, 2)
    compact(lake)
    write(stream, 3)
    assert consumer.poll() == [0, 1, 2, 3]
    assert consumer.rows == expected(0, 1, 2, 3)


@EXPIRIES
def test_expired_batches_are_read_while_their_files_live(
    lake: Lake, stream: Stream, consumer: Consumer, expires: Callable[[Lake], None]
) -> None:
    write(stream, 0)
    assert consumer.poll() == [0]
    write(stream, 1, 2, 3)
    expires(lake)
    delete_unreferenced_metadata(lake)
    assert consumer.poll() == [1, 2, 3]
    write(stream, 4)
    assert consumer.poll() == [4]
    assert consumer.rows == expected(0, 1, 2, 3, 4)


@EXPIRIES
def test_a_table_is_read_from_its_beginning_after_expiry(
    lake: Lake, stream: Stream, consumer: Consumer, expires: Callable[[Lake], None]
) -> None:
    write(stream, 0, 1, 2, 3)
    expires(lake)
    assert consumer.poll() == [0, 1, 2, 3]
    assert consumer.rows == expected(0, 1, 2, 3)


@EXPIRIES
def test_unread_batches_that_expired_and_were_compacted_are_refused_by_name(
    lake: Lake, stream: Stream, consumer: Consumer, expires: Callable[[Lake], None]
) -> None:
    write(stream, 0)
    assert consumer.poll() == [0]
    write(stream, 1, 2)
    compact(lake)
    write(stream, 3)
    expires(lake)
    sweep(lake)
    delete_unreferenced_metadata(lake)
    assert "[LAKESINK_READ_BATCH_GONE] Batch 1 of demo.events was not read" in refusal(consumer)
    assert consumer.rows == expected(0)


def delete_unreferenced_metadata(lake: Lake) -> None:
    """Delete manifests and lists that no retained snapshot has, as Java's expiry does."""
    table = lake.table()
    kept = {
        path
        for snapshot in table.metadata.snapshots
        for path in (snapshot.manifest_list, *(one.manifest_path for one in snapshot.manifests(table.io)))
    }
    for path in lake.files():
        if path.suffix == ".avro" and f"file://{path}" not in kept:
            path.unlink()


@EXPIRIES
def test_a_beginning_that_nothing_shows_any_more_is_refused(
    lake: Lake, stream: Stream, consumer: Consumer, expires: Callable[[Lake], None]
) -> None:
    set_property(lake, "write.metadata.previous-versions-max", "1")
    write(stream, 0, 1, 2)
    expires(lake)
    write(stream, 3, 4, 5)
    refused = refusal(consumer)
    assert "[LAKESINK_READ_BATCH_GONE] The first batches of sink 'events'" in refused
    assert "starting-batch=2" in refused


@EXPIRIES
def test_a_read_batch_that_expired_is_no_reason_to_stop(
    lake: Lake, stream: Stream, consumer: Consumer, expires: Callable[[Lake], None]
) -> None:
    write(stream, 0, 1)
    assert consumer.poll() == [0, 1]
    write(stream, 2)
    expires(lake)
    assert consumer.poll() == [2]
    assert consumer.rows == expected(0, 1, 2)


def test_a_position_that_nothing_proves_is_refused(lake: Lake, stream: Stream, consumer: Consumer) -> None:
    set_property(lake, "write.metadata.previous-versions-max", "1")
    write(stream, 0, 1)
    assert consumer.poll() == [0, 1]
    write(stream, 2, 3, 4, 5)
    expire(lake)
    write(stream, 6)
    assert "[LAKESINK_READ_UNVERIFIABLE] Batch 1 of sink 'events'" in refusal(consumer)


def test_batches_that_come_back_after_a_rollback_are_not_read_again(
    lake: Lake, stream: Stream, consumer: Consumer
) -> None:
    write(stream, 0, 1, 2)
    assert consumer.poll() == [0, 1, 2]
    roll_back(lake, stream.snapshot_of(0))
    assert consumer.poll() == []
    write(stream, 1)
    assert consumer.poll() == []
    write(stream, 2, 3)
    assert consumer.poll() == [3]
    assert consumer.rows == expected(0, 1, 2, 3)


def test_a_rollback_of_batches_that_were_not_read_changes_nothing(
    lake: Lake, stream: Stream, consumer: Consumer
) -> None:
    write(stream, 0, 1, 2)
    roll_back(lake, stream.snapshot_of(0))
    assert consumer.poll() == [0]
    write(stream, 1, 2)
    assert consumer.poll() == [1, 2]
    assert consumer.rows == expected(0, 1, 2)


def test_a_batch_that_comes_back_with_other_rows_is_refused(lake: Lake, stream: Stream, consumer: Consumer) -> None:
    write(stream, 0, 1)
    assert consumer.poll() == [0, 1]
    roll_back(lake, stream.snapshot_of(0))
    stream.run(stream.batch(1, end=3))
    refused = refusal(consumer)
    assert "[LAKESINK_READ_BATCH_CHANGED] Batch 1 of sink 'events'" in refused
    assert "--to-batch -1" in refused
    assert "LAKESINK_NEW_CHECKPOINT" in refused
    assert consumer.rows == expected(0, 1)


def test_a_batch_that_a_changed_query_writes_again_is_known_by_its_input(
    lake: Lake, stream: Stream, consumer: Consumer
) -> None:
    write(stream, 0, 1)
    assert consumer.poll() == [0, 1]
    roll_back(lake, stream.snapshot_of(0))
    stream.run(1, rows=2)
    write(stream, 2)
    assert consumer.poll() == [2]
    assert consumer.rows == expected(0, 1, 2), "a row of batch 1 too many: docs/use/read.md says what to do"


def of_files(stream: Stream, batch_id: int, *paths: str) -> Batch:
    """A batch that reads files, one entry of the source's log."""
    ends = [[{"logOffset": number}] for number in (batch_id - 1, batch_id)]
    return stream_batch(batch_id, stream.query, start=ends[0] if batch_id else None, end=ends[1], source_log=paths)


def test_input_that_comes_back_in_other_batches_is_not_read_again(
    lake: Lake, stream: Stream, consumer: Consumer
) -> None:
    for number in range(3):
        stream.run(stream.of_kafka(number, number, number + 1))
    assert consumer.poll() == [0, 1, 2]
    roll_back(lake, stream.snapshot_of(0))
    stream.run(stream.of_kafka(1, 1, 3), rows=6)
    assert consumer.poll() == []
    stream.run(stream.of_kafka(2, 3, 4))
    assert consumer.poll() == [2]
    assert consumer.rows == expected(0, 1, 2) + expected(2), "of offsets 0, 1, 2 and 3"


def in_kafka(*offsets: int) -> Any:
    """The end of a batch, by offsets of the partitions of a topic."""
    return [{"t": {str(partition): offset for partition, offset in enumerate(offsets)}}]


def in_table(batch: int) -> Any:
    """The end of a batch that reads the batches of another table."""
    return [Position("demo.raw", "a-uuid", "main", "raw", "query", batch, "", "", 1, batch + 1).to_offset()]


def write_to(stream: Stream, batch_id: int, start: Any, end: Any) -> None:
    stream.run(stream_batch(batch_id, stream.query, start=start, end=end))


@pytest.mark.parametrize(
    ("first", "read", "passes"),
    [
        (in_kafka(1, 1), [in_kafka(4, 4), in_kafka(5, 5)], in_kafka(4, 6)),
        (in_table(1), [in_table(10), in_table(11)], in_table(15)),
    ],
    ids=["one partition of Kafka", "a table"],
)
def test_a_reader_ends_by_name_once_a_batch_ends_behind_the_one_that_cannot_come_any_more(
    lake: Lake, stream: Stream, consumer: Consumer, first: Any, read: list[Any], passes: Any
) -> None:
    ends = [first, *read]
    write_to(stream, 0, None, first)
    for number in (1, 2):
        write_to(stream, number, ends[number - 1], ends[number])
    assert consumer.poll() == [0, 1, 2]
    roll_back(lake, stream.snapshot_of(0))
    assert consumer.poll() == []
    write_to(stream, 1, first, passes)
    assert "[LAKESINK_READ_BATCH_CHANGED] Batch 2 of sink 'events' in demo.events was read;" in refusal(consumer)
    assert consumer.rows == expected(0, 1, 2)


@pytest.mark.parametrize(
    ("is_expired", "reaches"),
    [(False, in_kafka(4)), (True, in_kafka(6))],  # expired, and with it how far the batch reached
    ids=["not so far", "unknown"],
)
def test_a_reader_waits_as_long_as_a_batch_may_end_where_the_one_that_was_read_did(
    lake: Lake, stream: Stream, consumer: Consumer, *, is_expired: bool, reaches: Any
) -> None:
    ends = [in_kafka(1), in_kafka(3), in_kafka(5)]
    for number, end in enumerate(ends):
        write_to(stream, number, ends[number - 1] if number else None, end)
    assert consumer.poll() == [0, 1, 2]
    read = stream.snapshot_of(2)
    roll_back(lake, stream.snapshot_of(0))
    if is_expired:
        expire(lake, [read])
    write_to(stream, 1, ends[0], reaches)
    assert consumer.poll() == []
    write_to(stream, 2, reaches, in_kafka(7))
    assert "[LAKESINK_READ_BATCH_CHANGED]" in refusal(consumer)


@pytest.mark.parametrize("replayed", [[("b", "c")], [("b",), ("c",)]], ids=["more files", "fewer files"])
def test_a_file_log_that_went_back_with_its_checkpoint_proves_nothing(
    lake: Lake, stream: Stream, consumer: Consumer, replayed: list[tuple[str, ...]]
) -> None:
    stream.run(of_files(stream, 0, "a"))
    stream.run(of_files(stream, 1, *(["b"] if len(replayed) == 1 else ["b", "c"])))
    assert consumer.poll() == [0, 1]
    roll_back(lake, stream.snapshot_of(0))
    for number, files in enumerate(replayed, 1):
        stream.run(of_files(stream, number, *files))
    with pytest.raises(CatalogError) as refused:
        consumer.poll()
    assert refused.value.code == "LAKESINK_READ_BATCH_CHANGED"


def test_a_batch_without_input_is_no_proof_that_its_rows_were_read(
    lake: Lake, stream: Stream, consumer: Consumer
) -> None:
    write(stream, 0, 1)
    stream.run(stream.batch(2, start=2, end=2))
    assert consumer.poll() == [0, 1, 2]
    assert consumer.position is not None
    assert consumer.position.end == ""
    roll_back(lake, stream.snapshot_of(0))
    write(stream, 1)
    assert consumer.poll() == []
    stream.run(stream.batch(2, start=2, end=2))
    stream.run(stream.batch(3, start=2))
    assert consumer.poll() == [3]


def test_a_plan_from_a_position_that_only_the_ledger_tells_is_empty(
    lake: Lake, stream: Stream, consumer: Consumer
) -> None:
    write(stream, 0, 1)
    consumer.poll()
    roll_back(lake, stream.snapshot_of(0))
    told = newest_position(lake.table(), TABLE, EVENTS)
    assert told == consumer.position
    expire(lake, [told.snapshot_id])
    told = newest_position(lake.table(), TABLE, EVENTS)
    assert told.end == ""
    assert consumer.position is not None
    assert consumer.read(consumer.position, told) == []


def test_a_new_query_after_a_rollback_behind_the_position_is_refused(
    lake: Lake, stream: Stream, consumer: Consumer
) -> None:
    write(stream, 0, 1)
    assert consumer.poll() == [0, 1]
    roll_back(lake, stream.snapshot_of(0))
    other = Stream(lake, query="query-2")
    other.run(other.batch(0, start=1))
    assert "[LAKESINK_READ_BATCH_CHANGED]" in refusal(consumer)


def test_batch_ids_that_begin_again_with_a_new_query_are_new_batches(
    lake: Lake, stream: Stream, consumer: Consumer
) -> None:
    write(stream, 0, 1)
    assert consumer.poll() == [0, 1]
    other = Stream(lake, query="query-2")
    other.run(other.batch(0, start=2))
    other.run(other.batch(1, start=3))
    assert consumer.poll() == [0, 1]
    assert consumer.rows == expected(0, 1, 2, 3)


def test_a_replayed_plan_has_the_same_files(lake: Lake, stream: Stream, consumer: Consumer) -> None:
    write(stream, 0, 1, 2)
    consumer.poll()
    start, end = position(consumer, stream, 0), position(consumer, stream, 2)
    planned = [file.path for one in consumer.read(start, end) for file in one.data]
    compact(lake)
    write(stream, 3)
    assert [file.path for one in consumer.read(start, end) for file in one.data] == planned


def position(consumer: Consumer, stream: Stream, batch_id: int) -> Position:
    """The position behind a batch."""
    [(mark, snapshot)] = [found for found in stream.own_snapshots() if found[0].batch_id == batch_id]
    assert consumer.position is not None
    place = snapshot.snapshot_id, snapshot.sequence_number or 0
    known = consumer.position.table, consumer.position.table_uuid, "main", "events"
    return Position(*known, mark.query_id, batch_id, mark.fingerprint, mark.end, *place)


def test_a_plan_whose_batches_were_rolled_back_waits_for_them(lake: Lake, stream: Stream, consumer: Consumer) -> None:
    write(stream, 0, 1, 2)
    consumer.poll()
    start, end = position(consumer, stream, 0), position(consumer, stream, 2)
    roll_back(lake, stream.snapshot_of(1))
    with pytest.raises(CatalogError, match=r"(?s)\[LAKESINK_READ_ROLLED_BACK\].*until it has written batch 2"):
        consumer.read(start, end)
    write(stream, 2)
    assert [one.batch.batch_id for one in consumer.read(start, end)] == [1, 2]
    with pytest.raises(CatalogError, match=r"\[LAKESINK_READ_ROLLED_BACK\]"):
        consumer.read(end, start)


def test_a_planned_batch_that_was_written_otherwise_is_not_called_read(
    lake: Lake, stream: Stream, consumer: Consumer
) -> None:
    write(stream, 0, 1)
    consumer.poll()
    start, end = position(consumer, stream, 0), position(consumer, stream, 1)
    roll_back(lake, stream.snapshot_of(0))
    stream.run(stream.batch(1, end=3))
    with pytest.raises(CatalogError, match=r"\[LAKESINK_READ_BATCH_CHANGED\] Batch 1 .* was to be read; it") as refused:
        consumer.read(start, end)
    assert "take the planned batch out of this query's checkpoint" in refused.value.action
    assert "Take the reading query back" not in refused.value.action


def test_rows_that_others_removed_stop_the_consumer_behind_the_batches_before(
    lake: Lake, stream: Stream, consumer: Consumer
) -> None:
    write(stream, 0, 1)
    rewrite(lake)
    write(stream, 2)
    assert consumer.poll() == [0, 1]
    assert "[LAKESINK_READ_ROWS_REMOVED] Another writer removed or replaced rows" in refusal(consumer)


def test_deletes_of_others_stop_the_consumer(lake: Lake, stream: Stream, consumer: Consumer) -> None:
    write(stream, 0)
    assert consumer.poll() == [0]
    [path] = [task.file.file_path for task in lake.table().scan().plan_files()]
    delete_by_position(lake, path, [0])
    assert "[LAKESINK_READ_ROWS_REMOVED]" in refusal(consumer)


def test_a_table_of_the_same_name_is_refused(lake: Lake, stream: Stream, consumer: Consumer) -> None:
    write(stream, 0)
    consumer.poll()
    replace_table(lake)
    assert "[LAKESINK_TABLE_REPLACED]" in refusal(consumer)


def test_a_branch_is_read_alone(lake: Lake, stream: Stream) -> None:
    write(stream, 0)
    branch_off(lake, "audit")
    Stream(lake, "audited", branch="audit").run(0)
    write(stream, 1)
    assert Consumer(lake, SinkBatches("audited", "audit")).poll() == [0]
    assert Consumer(lake).poll() == [0, 1]


def test_an_offset_survives_json_and_nothing_else_is_taken_for_one(stream: Stream, consumer: Consumer) -> None:
    write(stream, 0)
    consumer.poll()
    assert consumer.position is not None
    offset = consumer.position.to_offset()
    assert parse_offset(offset) == consumer.position
    assert parse_offset(consumer.position.before().to_offset()) == consumer.position.before()
    wrong = [{}, {"lakesink": 2}, offset | {"x": 1}, offset | {"batch": "0"}, offset | {"batch": True}]
    wrong += [offset | {"snapshot": 2**63}, {key: offset[key] for key in offset if key != "uuid"}, offset | {"read": 1}]
    for one in wrong:
        with pytest.raises(QueryError, match="LAKESINK_READ_OFFSET_UNREADABLE"):
            parse_offset(one)


def test_an_empty_table_after_a_rollback_to_nothing_waits(lake: Lake, stream: Stream, consumer: Consumer) -> None:
    write(stream, 0)
    consumer.poll()

    def without_head(metadata: dict[str, Any]) -> None:
        metadata["refs"].pop("main")
        metadata["current-snapshot-id"] = -1

    edit_metadata(lake, without_head)
    assert consumer.poll() == []


def test_a_checkpoint_of_another_sink_or_branch_is_refused(lake: Lake, stream: Stream, consumer: Consumer) -> None:
    write(stream, 0)
    consumer.poll()
    Stream(lake, "other").run(0)
    branch_off(lake, "audit")
    for changed in (SinkBatches("other", "main"), SinkBatches("events", "audit")):
        moved = Consumer(lake, changed, consumer.position)
        with pytest.raises(SettingsError, match=r"OPTION_INVALID.*its checkpoint has read 'events' on main"):
            moved.poll()


def test_a_plan_over_rows_that_were_taken_away_names_the_batches_that_are_unread(
    lake: Lake, stream: Stream, consumer: Consumer
) -> None:
    write(stream, 0)
    consumer.poll()
    write(stream, 1)
    rewrite(lake)
    write(stream, 2)
    assert consumer.position is not None
    newest = newest_position(lake.table(), TABLE, EVENTS)
    with pytest.raises(CatalogError, match=r"READ_ROWS_REMOVED.* and batch 1 before it were not read"):
        consumer.read(consumer.position, newest)
    assert consumer.poll() == [1]


@EXPIRIES
def test_a_beginning_in_front_of_a_batch_whose_snapshot_has_expired_is_found(
    lake: Lake, stream: Stream, expires: Callable[[Lake], None]
) -> None:
    write(stream, 0, 1, 2)
    expires(lake)
    for batch in range(3):
        position = beginning(lake.table(), TABLE, EVENTS, AtBatch(batch))
        assert Consumer(lake, position=position).poll() == list(range(batch, 3))
