"""The outbox produces each committed batch of a table once and in order, whatever dies, with tombstones for deletes."""

import json
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from lakesink.read.begin import followed
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.kafka.kafka_sink import KafkaSink
from lakesink_catalog.commit.effects import Effects
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.events import CommitAnswered, CommitDue, Event, Listeners
from lakesink_tools.operate.outbox.position import Outbox
from lakesink_tools.operate.outbox.produce import Produced, Producing
from servers.kafka import KafkaBroker
from testkit.bronze import Bronze
from testkit.builders import TABLE, Lake, Stream
from testkit.change_table import BY_PART, ROWS, SCHEMA, Change, ChangeStream, Reference, upsert_lake
from tests.interop.kafka_out.suite_sink import Reader

pytestmark = pytest.mark.interop


class Died(BaseException):
    """The process ended here."""


def fresh_topic(broker: KafkaBroker) -> str:
    topic = f"t{uuid4().hex[:20]}"
    broker.create_topic(topic, 1)
    return topic


def producing(broker: KafkaBroker, lake: Lake, topic: str, **options: Any) -> Producing:
    """The outbox of a process that has just started."""
    name = options.pop("name", f"outbox-{topic}")
    sink = KafkaSink(
        broker.bootstrap,
        sink_id=name,
        staging=lake.folder / "staging",
        topic=topic,
        effects=options.pop("effects", None),
    )
    outbox = Outbox(name, TABLE, followed(lake.table(), TABLE, "", "main"))
    return Producing(outbox, lake.table, sink, options.pop("keys", None), **options)


def produce(broker: KafkaBroker, lake: Lake, topic: str, **options: Any) -> list[Produced]:
    return list(producing(broker, lake, topic, **options).all_there_is())


def replayed(broker: KafkaBroker, topic: str) -> dict[bytes | None, Any]:
    """The newest value of each key, as a compacted topic or a table of a reader has it."""
    found: dict[bytes | None, Any] = {}
    for key, value in Reader(broker.bootstrap).records(topic):
        found.pop(key, None)
        if value is not None:
            found[key] = json.loads(value)
    return found


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    return {name: f"{value:.2f}" if isinstance(value, Decimal) else value for name, value in row.items()}


def by_key(rows: list[dict[str, Any]]) -> dict[bytes | None, Any]:
    return {json.dumps({"id": row["id"]}, separators=(",", ":")).encode(): as_json(row) for row in rows}


@pytest.mark.parametrize("seed", range(3))
def test_a_topic_follows_a_table_of_changes_batch_by_batch(broker: KafkaBroker, tmp_path: Path, seed: int) -> None:
    topic = fresh_topic(broker)
    lake = Lake.make(tmp_path, schema=SCHEMA, spec=BY_PART if seed else UNPARTITIONED_PARTITION_SPEC)
    stream, reference, most = ChangeStream(lake, seed=seed), Reference(), 12
    tombstones = 0
    for number in range(most):
        stream.run(number)
        reference.apply(stream.changes(number))
        if number % 3 == seed:
            tombstones += sum(batch.tombstones or 0 for batch in produce(broker, lake, topic))
            assert replayed(broker, topic) == by_key(reference.table)
    tombstones += sum(batch.tombstones or 0 for batch in produce(broker, lake, topic))
    assert replayed(broker, topic) == by_key(reference.table)
    assert tombstones > 0, "the history has deletes"
    assert produce(broker, lake, topic) == [], "there is nothing new"


@pytest.mark.parametrize("step", ["kafka_sink.KafkaSink.commit_of", "target.Session.send"])
def test_an_error_in_code_before_the_commit_ends_the_outbox_at_once_and_says_that_nothing_was_sent(
    broker: KafkaBroker, tmp_path: Path, step: str
) -> None:
    topic, lake, waited = fresh_topic(broker), Lake.make(tmp_path), list[float]()
    Stream(lake).run(0)
    defect = patch(f"lakesink.sinks.kafka.{step}", side_effect=AttributeError("a defect"))
    with defect, pytest.raises(LakesinkError, match="before anything was sent: AttributeError: a defect") as failed:
        produce(broker, lake, topic, effects=Effects(sleep_ms=waited.append))
    assert failed.value.code == "LAKESINK_COMMIT_FAILED"
    assert waited == []
    assert Reader(broker.bootstrap).records(topic) == []
    assert [batch.batch_id for batch in produce(broker, lake, topic)] == [0]
    assert len(Reader(broker.bootstrap).records(topic)) == 3


@pytest.mark.parametrize("dies_at", [CommitDue, CommitAnswered])
def test_a_process_that_dies_in_a_commit_is_gone_on_with(
    broker: KafkaBroker, tmp_path: Path, dies_at: type[Event]
) -> None:
    topic = fresh_topic(broker)
    lake = Lake.make(tmp_path)
    Stream(lake).filled(3)

    def die(event: Event) -> None:
        if isinstance(event, dies_at) and event.batch_id == 1:  # type: ignore[attr-defined] # both have it
            raise Died

    effects = replace(Effects(), emit=Listeners(log=lambda _: None, failpoints=die))
    with pytest.raises(Died):
        produce(broker, lake, topic, effects=effects)
    produce(broker, lake, topic)
    values = [json.loads(value or b"") for _, value in Reader(broker.bootstrap).records(topic)]
    rows = sorted(lake.table().scan().to_arrow().to_pylist(), key=lambda row: tuple(row.values()))
    assert sorted(values, key=lambda row: tuple(row.values())) == rows
    batches = [row[next(iter(row))] for row in values]
    assert batches == sorted(batches), "in the order of the batches"


def test_replayed_dead_letters_are_produced_once_where_they_stand(broker: KafkaBroker, tmp_path: Path) -> None:
    topic, bronze = fresh_topic(broker), Bronze.make(tmp_path)
    bronze.run(0)
    bronze.replay()
    bronze.run(1)
    first = next(producing(broker, bronze.lake, topic).all_there_is())
    found = [first, *produce(broker, bronze.lake, topic)]
    bronze.replay()
    found += [*produce(broker, bronze.lake, topic), *produce(broker, bronze.lake, topic)]
    assert [(batch.batch_id, batch.replay, batch.rows) for batch in found] == [
        (0, None, 2),
        (None, 1, 1),
        (1, None, 2),
        (None, 2, 1),
    ]
    values = [json.loads(value) for _, value in Reader(broker.bootstrap).records(topic) if value is not None]
    assert [(row["batch"], row["position"]) for row in values] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_two_outboxes_of_one_name_produce_each_batch_once(broker: KafkaBroker, tmp_path: Path) -> None:
    topic = fresh_topic(broker)
    lake = Lake.make(tmp_path)
    Stream(lake).filled(4)
    first, second = (producing(broker, lake, topic).all_there_is() for _ in range(2))
    found = [next(first), next(second), next(second), *first, *second]
    assert sorted(str(batch.batch_id) for batch in found if batch.rows is not None) == ["0", "1", "2", "3"]
    assert len(Reader(broker.bootstrap).records(topic)) == 12


def test_a_table_without_a_key_has_records_without_one_and_key_columns_can_be_named(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    lake = Lake.make(tmp_path)
    Stream(lake).run(0)
    no_key, named_key = fresh_topic(broker), fresh_topic(broker)
    names = lake.table().schema().column_names
    produce(broker, lake, no_key)
    produce(broker, lake, named_key, keys=(names[1],))
    reader = Reader(broker.bootstrap)
    assert {key for key, _ in reader.records(no_key)} == {None}
    for key, value in reader.records(named_key):
        assert json.loads(key or b"") == {names[1]: json.loads(value or b"")[names[1]]}


def test_an_outbox_of_another_topic_or_table_is_refused(broker: KafkaBroker, tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    Stream(lake).run(0)
    one, other = fresh_topic(broker), fresh_topic(broker)
    produce(broker, lake, one)
    moved = producing(broker, lake, other, name=f"outbox-{one}")
    with pytest.raises(LakesinkError) as refused:
        list(moved.all_there_is())
    assert refused.value.code == "LAKESINK_OUTBOX_REFUSED"
    assert Reader(broker.bootstrap).records(other) == []


def change(key: int, version: int, value: str = "x", *, deletes: bool = False) -> Change:
    return Change(key, version, "a", value, Decimal("1.00"), deletes=deletes)


class OfRenamed(ChangeStream):
    """The same stream, when its query has followed the new name of the key."""

    def sink(self, **options: Any) -> IcebergSink:
        sink = ChangeStream.sink(self, **options)
        rows = ROWS.set(0, pa.field("ident", pa.int64()))
        return IcebergSink(sink.table, sink.key, sink.open_catalog, sink.settings, rows, effects=sink.effects)


def refusal(broker: KafkaBroker, lake: Lake, topic: str, **options: Any) -> LakesinkError:
    """The error of an outbox that must not go on; nothing reaches the topic."""
    before = Reader(broker.bootstrap).records(topic)
    with pytest.raises(LakesinkError) as refused:
        produce(broker, lake, topic, **options)
    assert Reader(broker.bootstrap).records(topic) == before
    return refused.value


def test_a_key_column_that_was_renamed_keeps_its_name_in_older_batches_and_is_refused_in_newer_ones(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    topic, lake = fresh_topic(broker), upsert_lake(tmp_path)
    stream = ChangeStream(lake)
    stream.run_changes(0, [[change(1, 1), change(2, 1)]])
    produce(broker, lake, topic)
    stream.run_changes(1, [[change(1, 2, deletes=True)]])
    with lake.table().update_schema() as update:
        update.rename_column("id", "ident")
    produce(broker, lake, topic)
    assert list(replayed(broker, topic)) == [b'{"id":2}']
    OfRenamed(lake, options={"keys": ["ident"]}).run_changes(2, [[]])
    refused = refusal(broker, lake, topic)
    assert refused.code == "LAKESINK_OUTBOX_KEY"
    assert "(ident)" in refused.what
    assert "(id)" in refused.what


def test_another_key_at_a_restart_is_refused(broker: KafkaBroker, tmp_path: Path) -> None:
    topic, lake = fresh_topic(broker), upsert_lake(tmp_path)
    stream = ChangeStream(lake)
    stream.run_changes(0, [[change(1, 1), change(2, 1)]])
    produce(broker, lake, topic, keys=("id", "id"))
    stream.run_changes(1, [[change(1, 2, deletes=True)]])
    assert refusal(broker, lake, topic, keys=("id", "version")).code == "LAKESINK_OUTBOX_KEY"
    produce(broker, lake, topic)
    assert list(replayed(broker, topic)) == [b'{"id":2}']


def test_a_key_of_several_rows_is_refused_when_a_row_is_deleted(broker: KafkaBroker, tmp_path: Path) -> None:
    topic, lake = fresh_topic(broker), upsert_lake(tmp_path)
    stream = ChangeStream(lake)
    stream.run_changes(0, [[change(1, 1), change(2, 1)]])
    produce(broker, lake, topic, keys=("part",))
    stream.run_changes(1, [[change(1, 2, deletes=True)]])
    assert refusal(broker, lake, topic, keys=("part",)).code == "LAKESINK_OUTBOX_KEY"


def delete_topic(broker: KafkaBroker, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    client.delete_topics([topic])[topic].result(60)
    while topic in client.list_topics(timeout=60).topics:
        time.sleep(0.05)


def test_a_ledger_topic_that_is_deleted_under_an_outbox_ends_it(broker: KafkaBroker, tmp_path: Path) -> None:
    topic, lake = fresh_topic(broker), Lake.make(tmp_path)
    stream = Stream(lake)
    stream.run(0)
    service = producing(broker, lake, topic)
    assert len(list(service.all_there_is())) == 1
    assert list(service.all_there_is()) == []
    delete_topic(broker, f"lakesink-ledger-outbox-{topic}")
    stream.run(1)
    for _ in range(2):
        with pytest.raises(LakesinkError, match="OUTBOX_REFUSED"):
            list(service.all_there_is())
    assert len(Reader(broker.bootstrap).records(topic)) == 3


def test_an_outbox_begins_with_the_batch_that_is_named_and_only_a_new_one_does(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    topic, lake = fresh_topic(broker), Lake.make(tmp_path)
    stream = Stream(lake).filled(4)
    unknown = refusal(broker, lake, topic, starting_batch=7)
    assert (unknown.code, "--starting-batch is 7" in unknown.what) == ("LAKESINK_OPTION_INVALID", True)
    assert [batch.batch_id for batch in produce(broker, lake, topic, starting_batch=2)] == [2, 3]
    stream.run(4)
    assert [batch.batch_id for batch in produce(broker, lake, topic, starting_batch=2)] == [4]
    stream.run(5)
    other = refusal(broker, lake, topic, starting_batch=3)
    assert (other.code, "began with batch 2" in other.what) == ("LAKESINK_OUTBOX_REFUSED", True)
    assert [batch.batch_id for batch in produce(broker, lake, topic)] == [5]
    assert refusal(broker, lake, topic, starting_batch=3).code == "LAKESINK_OUTBOX_REFUSED", "it is still known"


def test_an_outbox_that_began_with_the_first_batch_does_not_begin_with_another(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    topic, lake = fresh_topic(broker), Lake.make(tmp_path)
    stream = Stream(lake)
    stream.run(0)
    produce(broker, lake, topic)
    stream.run(1)
    refused = refusal(broker, lake, topic, starting_batch=1)
    assert "began with the first batch" in refused.what


def test_a_batch_that_no_topic_takes_is_passed_by_another_outbox(broker: KafkaBroker, tmp_path: Path) -> None:
    topic, lake = fresh_topic(broker), upsert_lake(tmp_path)
    stream = ChangeStream(lake)
    stream.run_changes(0, [[change(1, 1)]])
    stream.run_changes(1, [[change(1, 2, "y" * 1_500_000)]])
    stream.run_changes(2, [[change(1, 3, "small")]])
    with pytest.raises(LakesinkError) as refused:
        produce(broker, lake, topic)
    assert refused.value.code == "LAKESINK_KAFKA_RECORD_TOO_LARGE"
    assert "A row of batch 1 takes" in refused.value.what
    assert "--starting-batch 2" in refused.value.action
    assert "The topic has the batches up to" in refused.value.data
    produce(broker, lake, topic, name=f"again-{topic}", starting_batch=2)
    assert [row["value"] for row in replayed(broker, topic).values()] == ["small"]


def test_a_table_whose_first_snapshots_have_expired_is_produced_from_a_later_batch(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = fresh_topic(broker)
    lake = Lake.make(tmp_path, properties={"write.metadata.previous-versions-max": "1"})
    stream = Stream(lake).filled(4)
    old = [snapshot.snapshot_id for _, snapshot in stream.own_snapshots()[:2]]
    lake.table().maintenance.expire_snapshots().by_ids(old).commit()
    stream.run(4)
    stream.run(5)
    refused = refusal(broker, lake, topic)
    assert (refused.code, "--starting-batch" in refused.action) == ("LAKESINK_READ_BATCH_GONE", True)
    assert [batch.batch_id for batch in produce(broker, lake, topic, starting_batch=2)] == [2, 3, 4, 5]


def test_a_rollback_behind_the_position_stops_an_outbox_until_its_batch_is_there_again(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    topic, lake = fresh_topic(broker), Lake.make(tmp_path)
    stream = Stream(lake).filled(3)
    produce(broker, lake, topic)
    lake.table().manage_snapshots().set_current_snapshot(snapshot_id=stream.snapshot_of(0)).commit()
    assert refusal(broker, lake, topic).code == "LAKESINK_READ_ROLLED_BACK"
    stream.run(1)
    assert refusal(broker, lake, topic).code == "LAKESINK_READ_ROLLED_BACK"
    stream.run(2)
    stream.run(3)
    assert [batch.batch_id for batch in produce(broker, lake, topic)] == [3]
    lake.table().manage_snapshots().set_current_snapshot(snapshot_id=stream.snapshot_of(1)).commit()
    stream.run(stream.batch(2, start=2, end=4))
    stream.run(stream.batch(3, start=4, end=5))
    assert refusal(broker, lake, topic).code == "LAKESINK_READ_BATCH_CHANGED"
