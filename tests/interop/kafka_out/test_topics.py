"""What becomes of topics, and what a topic takes: refused by name before anything is sent, or sent as it is."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from lakesink.sinks.kafka.kafka_sink import KafkaSink
from lakesink.sinks.kafka.staged_rows import HEADERS
from lakesink_catalog.commit.effects import Effects
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import BatchRefused, CatalogError, LakesinkError, Reason, WriteError
from lakesink_protocol.identity import stream_batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes
from lakesink_tools.testing.points import Died
from lakesink_tools.testing.stream import Stream
from servers.kafka import KafkaBroker
from tests.interop.kafka_out.suite_sink import KafkaPlace, Reader, Record, rows_of

pytestmark = [pytest.mark.interop, pytest.mark.nightly]
SECONDS = 30


@pytest.fixture
def place(broker: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest) -> KafkaPlace:
    name = f"t{abs(hash(request.node.nodeid))}"
    broker.create_topic(name, 1)
    return KafkaPlace(broker.bootstrap, name, tmp_path)


def suite_stream(place: KafkaPlace) -> Stream:
    return Stream(place.sink, lambda: rows_of(Reader(place.bootstrap).records(place.name)))


def admin(place: KafkaPlace) -> AdminClient:
    return AdminClient({"bootstrap.servers": place.bootstrap, "log_level": 0})


def delete(place: KafkaPlace, topic: str) -> None:
    client = admin(place)  # must outlive its answer
    client.delete_topics([topic])[topic].result(SECONDS)
    deadline = time.monotonic() + SECONDS
    while topic in client.list_topics(timeout=SECONDS).topics and time.monotonic() < deadline:
        time.sleep(0.1)


def create(place: KafkaPlace, topic: str, partitions: int = 1, **config: str) -> None:
    client = admin(place)
    made = NewTopic(topic, partitions, 1, config={name.replace("_", "."): value for name, value in config.items()})
    client.create_topics([made])[topic].result(SECONDS)
    while topic not in client.list_topics(timeout=SECONDS).topics:  # the broker tells it to others a moment later
        time.sleep(0.1)


def ledger(place: KafkaPlace) -> str:
    return f"lakesink-ledger-{place.name}"


def produce(sink: KafkaSink, rows: pa.RecordBatch, batch_id: int = 0) -> Outcome:
    """One batch of one task with these rows, through the real coordinator."""

    def write(writers: Any) -> Votes:
        [(name, writer)] = writers.items()
        of_task: TaskWriter = writer
        return Votes.in_order({name: [of_task.write(0, iter([rows]))]})

    batch = stream_batch(batch_id, "query-1", start=[batch_id], end=[batch_id + 1])
    return run_batch(batch, [sink], write)[sink.name]


def plain(place: KafkaPlace, **options: Any) -> KafkaSink:
    """The sink without the suite's rows."""
    given = {"sink_id": place.name, "staging": place.staging, "topic": place.name, **options}
    return KafkaSink(place.bootstrap, **given)


def refusal(run: Callable[[], object]) -> LakesinkError:
    with pytest.raises(LakesinkError) as caught:
        run()
    return caught.value


@pytest.mark.parametrize("step", ["kafka_sink.KafkaSink.commit_of", "target.Session.send"])
def test_an_error_in_code_before_the_commit_ends_the_batch_at_once_and_says_that_nothing_was_sent(
    place: KafkaPlace, step: str
) -> None:
    waited: list[float] = []
    rows = pa.record_batch({"value": [b"a", b"b"]})
    with patch(f"lakesink.sinks.kafka.{step}", side_effect=AttributeError("a defect")):
        error = refusal(lambda: produce(plain(place, effects=Effects(sleep_ms=waited.append)), rows))
    assert error.code == "LAKESINK_COMMIT_FAILED"
    assert "before anything was sent: AttributeError: a defect" in error.what
    assert waited == []
    assert Reader(place.bootstrap).records(place.name) == []
    again = produce(plain(place), rows)
    assert isinstance(again, Committed)
    assert again.recovered
    assert Reader(place.bootstrap).records(place.name) == [(None, b"a"), (None, b"b")]


def test_a_deleted_ledger_topic_is_refused_and_nothing_comes_twice(place: KafkaPlace) -> None:
    stream = suite_stream(place)
    stream.run_all(0, 1)
    delete(place, ledger(place))
    error = refusal(lambda: stream.run(2))
    assert isinstance(error, BatchRefused)
    assert error.reason is Reason.UNKNOWN_HISTORY
    assert isinstance(refusal(lambda: stream.run(1)), BatchRefused), "a replay too"
    stream.check(0, 1)


def test_a_ledger_topic_that_is_deleted_under_a_running_stream_is_refused(place: KafkaPlace) -> None:
    stream, sink = suite_stream(place), place.sink()
    stream.run_all(0, 1, sink=sink)
    delete(place, ledger(place))
    error = refusal(lambda: stream.run(2, sink=sink))
    assert isinstance(error, BatchRefused)
    assert error.reason is Reason.TABLE_REPLACED
    stream.check(0, 1)


def test_a_topic_that_was_created_again_is_refused(place: KafkaPlace) -> None:
    stream = suite_stream(place)
    stream.run_all(0, 1)
    delete(place, place.name)
    create(place, place.name)
    error = refusal(lambda: stream.run(2))
    assert isinstance(error, BatchRefused)
    assert error.reason is Reason.TABLE_REPLACED
    stream.check()


def test_a_tombstone_in_the_ledger_topic_is_damage(place: KafkaPlace) -> None:
    stream = suite_stream(place)
    stream.run(0)
    somebody = Producer({"bootstrap.servers": place.bootstrap, "log_level": 0})
    somebody.produce(ledger(place), key=place.name.encode(), value=None)
    somebody.flush(SECONDS)
    error = refusal(lambda: stream.run(1))
    assert isinstance(error, BatchRefused)
    assert error.reason is Reason.LEDGER_DAMAGED
    stream.check(0)


def test_compaction_leaves_the_newest_batch_and_the_stream_goes_on(place: KafkaPlace) -> None:
    create(
        place,
        ledger(place),
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.001",
        max_compaction_lag_ms="100",
    )
    stream, sink = suite_stream(place), place.sink()
    stream.run_all(*range(6), sink=sink)
    reader, deadline = Reader(place.bootstrap), time.monotonic() + 120
    batch = 6
    while len(reader.records(ledger(place))) > 3 and time.monotonic() < deadline:
        time.sleep(5)
        stream.run(batch, sink=sink)
        batch += 1
    assert len(reader.records(ledger(place))) < batch, "compaction took old records away"
    assert stream.run(batch - 1) == AlreadyCommitted(batch - 1)
    assert isinstance(refusal(lambda: stream.run(0)), BatchRefused)
    stream.goes_on(batch)


@pytest.mark.parametrize(
    ("config", "partitions", "says"),
    [({"cleanup_policy": "delete"}, 1, "cleanup.policy=delete"), ({"cleanup_policy": "compact"}, 2, "2 partitions")],
)
def test_a_ledger_topic_that_would_lose_the_ledger_is_refused(
    place: KafkaPlace, config: dict[str, str], partitions: int, says: str
) -> None:
    create(place, ledger(place), partitions, **config)
    error = refusal(lambda: suite_stream(place).run(0))
    assert error.code == "LAKESINK_KAFKA_LEDGER_UNUSABLE"
    assert says in error.what


def test_a_missing_topic_is_refused_and_not_created(place: KafkaPlace) -> None:
    error = refusal(lambda: suite_stream(replace(place, name="not-there")).run(0))
    assert isinstance(error, CatalogError)
    assert error.code == "LAKESINK_KAFKA_TOPIC_MISSING"
    assert "not-there" not in admin(place).list_topics(timeout=SECONDS).topics


def test_a_cluster_that_is_not_there_is_refused_in_time(tmp_path: Path) -> None:
    sink = KafkaSink("127.0.0.1:1", sink_id="x", staging=tmp_path, topic="x", config={"socket.timeout.ms": 1000})
    error = refusal(lambda: produce(sink, pa.record_batch({"value": ["x"]})))
    assert error.code == "LAKESINK_KAFKA_UNREACHABLE"
    assert "committed nothing of the batch" in error.data
    assert "table" not in str(error)


def test_a_transaction_longer_than_the_broker_allows_is_refused_before_a_row_is_read(place: KafkaPlace) -> None:
    sink = plain(place, config={"transaction.timeout.ms": 3_600_000})
    error = refusal(lambda: produce(sink, pa.record_batch({"value": ["x"]})))
    assert error.code == "LAKESINK_KAFKA_TIMEOUT_TOO_LONG"
    assert not (place.staging / place.name / "parts").exists()


def test_a_row_that_is_larger_than_the_topic_accepts_is_refused_with_nothing_sent(place: KafkaPlace) -> None:
    create(place, f"{place.name}-small", max_message_bytes="2000")
    sink = plain(place, topic=f"{place.name}-small")
    error = refusal(lambda: produce(sink, pa.record_batch({"value": ["x", "x" * 3000]})))
    assert isinstance(error, WriteError)
    assert error.code == "LAKESINK_KAFKA_RECORD_TOO_LARGE"
    assert Reader(place.bootstrap).records(f"{place.name}-small") == []
    filled = ["x" * 1800] * 50
    assert isinstance(produce(sink, pa.record_batch({"value": filled})), Committed), "batches of records fit too"
    assert len(Reader(place.bootstrap).records(f"{place.name}-small")) == 50


@pytest.mark.parametrize("size", [20, 450])
def test_a_topic_that_takes_less_than_the_client_asks_for_gets_its_records(place: KafkaPlace, size: int) -> None:
    create(place, f"{place.name}-small", max_message_bytes="600")
    sink = plain(place, topic=f"{place.name}-small")
    assert isinstance(produce(sink, pa.record_batch({"value": ["x" * size] * 50})), Committed)
    assert Reader(place.bootstrap).records(f"{place.name}-small") == [(None, b"x" * size)] * 50


def test_a_prepared_row_that_the_producer_no_longer_takes_is_refused_with_its_size_and_both_limits(
    place: KafkaPlace,
) -> None:
    rows, sink = pa.record_batch({"key": ["k"], "value": ["x" * 5000]}), plain(place)
    with patch.object(sink, "commit", side_effect=Died()), pytest.raises(Died):
        produce(sink, rows)
    error = refusal(lambda: produce(plain(place, config={"message.max.bytes": 2000}), rows))
    assert error.code == "LAKESINK_KAFKA_RECORD_REFUSED"
    assert f"A record of 5001 bytes for topic '{place.name[:40]}' is refused: " in error.what
    assert "message.max.bytes in config (2000)" in error.action
    assert f"max.message.bytes and the other settings of topic '{place.name}'" in error.action
    produce(plain(place), rows)
    assert Reader(place.bootstrap).records(place.name) == [(b"k", b"x" * 5000)]


def test_a_row_that_the_broker_refuses_is_refused_with_its_size(place: KafkaPlace) -> None:
    sink, client = plain(place), admin(place)
    resource = ConfigResource(ResourceType.TOPIC, place.name)
    lower = ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(lower)
    sound = sink.commit

    def commit(*arguments: Any) -> Any:
        client.incremental_alter_configs([resource])[resource].result(SECONDS)
        return sound(*arguments)

    with patch.object(sink, "commit", commit):
        error = refusal(lambda: produce(sink, pa.record_batch({"value": ["x" * 5000]})))
    assert error.code == "LAKESINK_KAFKA_RECORD_REFUSED"
    assert "A record of 5000 bytes" in error.what
    assert "committed nothing of the batch" in error.data
    assert Reader(place.bootstrap).records(place.name) == []


def test_rows_can_name_their_topics_and_partitions(place: KafkaPlace) -> None:
    other = f"{place.name}-other"
    create(place, other, 3)
    rows = pa.record_batch(
        {
            "value": ["a", "b", "c", "d"],
            "topic": [place.name, other, other, other],
            "partition": pa.array([None, 2, 0, 2], pa.int32()),
        }
    )
    assert isinstance(produce(plain(place, topic=None), rows), Committed)
    reader = Reader(place.bootstrap)
    assert values(reader.records(place.name)) == [b"a"]
    assert [values(reader.of_partition(other, number)) for number in range(3)] == [[b"c"], [], [b"b", b"d"]]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({"topic": ["{name}"], "partition": pa.array([1], pa.int32())}, "partition 1"),
        ({"topic": ["not-there"], "partition": pa.array([None], pa.int32())}, "does not exist"),
    ],
)
def test_a_topic_that_cannot_take_a_row_refuses_the_batch_with_nothing_sent(
    place: KafkaPlace, rows: dict[str, Any], says: str
) -> None:
    topics = [topic.format(name=place.name) for topic in rows["topic"]]
    batch = pa.record_batch({"value": ["x"], "topic": topics, "partition": rows["partition"]})
    error = refusal(lambda: produce(plain(place, topic=None), batch))
    assert says in error.what
    assert Reader(place.bootstrap).records(place.name) == []


def test_keys_values_and_headers_arrive_as_they_are(place: KafkaPlace) -> None:
    keys = [b"", None, b"\xff\x00", "ü\u0000€𝄞".encode()]
    headers = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, [{"key": "ü", "value": b""}], []]
    rows = pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([None, b"", b"\x00", b"x" * 100_000], pa.binary()),
            "headers": pa.array(headers, HEADERS),
        }
    )
    produce(plain(place), rows)
    assert Reader(place.bootstrap).records(place.name) == list(
        zip(keys, [None, b"", b"\x00", b"x" * 100_000], strict=True)
    )
    assert Reader(place.bootstrap).headers(place.name) == [
        [("a", b"1"), ("a", None)],
        None,
        [("ü", b"")],
        None,
    ]


def test_a_header_or_topic_with_nul_is_refused_with_nothing_sent(place: KafkaPlace) -> None:
    headers = [[{"key": "a", "value": b"1"}], [{"key": "a\0b", "value": b"2"}]]
    rows = pa.record_batch({"value": ["x", "y"], "headers": pa.array(headers, HEADERS)})
    named = pa.record_batch({"value": ["x", "y"], "topic": [place.name, f"{place.name}\0b"]})
    for sink, refused in ((plain(place), rows), (plain(place, topic=None), named)):
        error = refusal(lambda sink=sink, refused=refused: produce(sink, refused))  # type: ignore[misc]
        assert error.code == "LAKESINK_KAFKA_ROW_REFUSED"
        assert "NUL" in error.what
    assert Reader(place.bootstrap).records(place.name) == []


def test_staged_files_go_with_a_later_batch_and_only_those_that_a_record_names(place: KafkaPlace) -> None:
    parts = place.staging / place.name / "parts"
    stream = suite_stream(place)
    stream.run(0)
    of_nobody = parts / f"{place.name}-0-00000-00000000-0000-0000-0000-000000000000.parquet"
    of_nobody.write_bytes(b"a task that failed")
    stream.run(1)  # by a driver that has just started
    left = sorted(path.name.removeprefix(f"{place.name}-")[0] for path in parts.iterdir())
    assert left == ["0", "1", "1", "1"], "the parts of batch 1, and the file that nobody names"
    assert of_nobody.exists()
    stream.goes_on(2)


def values(records: list[Record]) -> list[bytes | None]:
    return [value for _, value in records]


def test_another_driver_ends_the_transaction_that_a_dead_one_left_open(place: KafkaPlace) -> None:
    stream = suite_stream(place)
    stream.run(0)
    dead = Producer(
        {"bootstrap.servers": place.bootstrap, "transactional.id": f"lakesink-{place.name}", "log_level": 0}
    )
    dead.init_transactions(SECONDS)
    dead.begin_transaction()
    dead.produce(place.name, value=json.dumps([1, -1]).encode())
    dead.produce(ledger(place), key=place.name.encode(), value=b"{}")
    dead.flush(SECONDS)
    stream.goes_on(1)
    with pytest.raises(KafkaException):
        dead.commit_transaction(SECONDS)
    stream.goes_on(2)


def test_a_driver_reads_a_ledger_that_somebody_elses_transaction_hides_only_after_it_ended(place: KafkaPlace) -> None:
    """Another transactional id in the ledger topic is not fenced: its record must not be passed by."""
    stream = suite_stream(place)
    stream.run(0)
    other = Producer({"bootstrap.servers": place.bootstrap, "transactional.id": "other", "log_level": 0})
    other.init_transactions(SECONDS)
    other.begin_transaction()
    other.produce(ledger(place), key=b"other", value=b"{}")
    other.flush(SECONDS)
    error = refusal(lambda: stream.run(1))
    assert error.code in ("LAKESINK_KAFKA_UNREACHABLE", "LAKESINK_KAFKA_FAILED")
    other.abort_transaction(SECONDS)
    stream.goes_on(1)
