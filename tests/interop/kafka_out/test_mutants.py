"""Seeded bugs of the Kafka sink and of the outbox: what is easily got wrong, and a scenario that sees it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from pyroaring import BitMap64

from lakesink.sinks.kafka import kafka_sink as sink_module
from lakesink.sinks.kafka import target, topics
from lakesink.sinks.kafka.clients import Clients
from lakesink.sinks.kafka.commit_record import CommitRecord, LedgerState
from lakesink.sinks.kafka.staged_rows import RecordsWriter
from lakesink.sinks.kafka.target import KafkaTarget, Session
from lakesink_catalog.commit.effects import Effects
from lakesink_protocol.errors import BatchRefused, CatalogError, CommitUnresolved
from lakesink_protocol.events import CommitAnswered, Listener, Listeners
from lakesink_protocol.outcome import AlreadyCommitted
from lakesink_protocol.retry import RetryPolicy
from lakesink_tools.operate.outbox import batch_records
from lakesink_tools.operate.outbox.produce import Producing
from lakesink_tools.testing.points import Died
from servers.kafka import KafkaBroker
from tests.interop.kafka_out import test_outbox, test_topics
from tests.interop.kafka_out.suite_sink import KafkaPlace

pytestmark = [pytest.mark.interop, pytest.mark.nightly]
Bug = Callable[[], Any]
Scenario = Callable[[KafkaBroker, KafkaPlace], None]


# Bugs


def no_producer_fences_another() -> Any:
    """Each producer has a transactional id of its own."""
    sound = Clients.producer

    def producer(self: Clients, transactional_id: str, failures: list[Any], most_bytes: int) -> Producer:
        return sound(self, f"{transactional_id}-{uuid4()}", failures, most_bytes)

    return patch.object(Clients, "producer", producer)


def the_ledger_is_read_before_the_fence() -> Any:
    """Another driver can commit between the two."""
    sound = KafkaTarget.fence

    def fence(self: KafkaTarget) -> LedgerState:
        known = self._ledger.record if self._ledger.read() else None
        sound(self)
        self._ledger.record = known
        return self.state

    return patch.object(KafkaTarget, "fence", fence)


def a_session_goes_on_after_a_failure() -> Any:
    """The outcome of its transaction is unknown, and the ledger is not read again."""
    sound = KafkaTarget.take_session

    def take_session(self: KafkaTarget, attempt: int) -> Session:
        self._session = sound(self, attempt)
        return self._session

    return patch.object(KafkaTarget, "take_session", take_session)


def a_commit_is_not_remembered() -> Any:
    """The next commit of the same driver decides on the ledger as it was before."""

    def landed(self: KafkaTarget, session: Session, _: CommitRecord) -> None:
        self._session = session

    return patch.object(KafkaTarget, "landed", landed)


def the_ledger_has_a_transaction_of_its_own() -> Any:
    """Rows first, then the ledger: a crash between the two doubles the rows."""
    sound = target.commit_rows

    def commit_rows(
        to: KafkaTarget, session: Session, rows: Iterable[pa.RecordBatch], record: CommitRecord, emit: Listener
    ) -> None:
        session.producer.begin_transaction()
        for some in rows:
            session.send(some, to.topic)
        session.flush(60)
        session.producer.commit_transaction(60)
        emit(CommitAnswered(record.batch.batch_id))
        sound(to, session, [], record, emit)

    return patch.object(sink_module, "commit_rows", commit_rows)


def a_read_ends_before_open_transactions() -> Any:
    """A record that is committed, and whose marker is not written yet, is passed by."""

    def read(self: topics.LedgerTopic) -> bool:
        self.topic_id = self.topics.ledger(self.topic)
        self._read_to_eof()
        return True

    return patch.object(topics.LedgerTopic, "read", read)


def topics_are_known_by_their_names() -> Any:
    """A topic that was created again seems to be the same."""
    return patch.object(target, "digest", lambda ids: "-".join(sorted(ids)))


def damage_is_passed_by() -> Any:
    """What is no record of lakesink does not count."""
    sound = vars(KafkaTarget)["state"].fget

    def state(self: KafkaTarget) -> LedgerState:
        found = sound(self)
        return LedgerState(found.record, found.target_id)

    return patch.object(KafkaTarget, "state", property(state))


def rows_are_not_measured() -> Any:
    """A row that no topic takes stops a transaction instead of a task."""
    return patch.object(sink_module, "RecordsWriter", lambda parts, topic, _: RecordsWriter(parts, topic, 10**9))


def deletes_of_earlier_batches_count_again() -> Any:
    """A delete file contains the positions of the one that it replaces."""
    sound = batch_records._positions  # noqa: SLF001 - the seeded bug is inside

    def positions(deletes: Any, data: Any, part: Any) -> Any:
        asks_for_earlier = any(isinstance(known, BitMap64) for known in data.values())
        return {} if asks_for_earlier else sound(deletes, data, part)

    return patch.object(batch_records, "_positions", positions)


def a_replaced_row_is_taken_for_a_deleted_one() -> Any:
    """A tombstone follows the new row of a key."""

    sound = batch_records.RowRecords.removals

    def removals(self: batch_records.RowRecords, rows: pa.RecordBatch, _: Any) -> pa.RecordBatch:
        return sound(self, rows, ())

    return patch.object(batch_records.RowRecords, "removals", removals)


def an_outbox_remembers_its_own_position() -> Any:
    """What another process of the same outbox produced is not looked at."""
    sound, remembered = Producing.progress_in, {}

    def progress_in(self: Producing, state: LedgerState) -> Any:
        if id(self) not in remembered:
            remembered[id(self)] = sound(self, state)
        return remembered[id(self)]

    return patch.object(Producing, "progress_in", progress_in)


# Scenarios


def two_drivers_commit_one_batch(_: KafkaBroker, place: KafkaPlace) -> None:
    stream = test_topics.suite_stream(place)
    stream.run(0)
    sinks = [place.sink(), place.sink()]
    prepared = [stream.prepare(sink, 1) for sink in sinks]
    for sink, (transaction, ready) in zip(sinks, prepared, strict=True):
        sink.commit(transaction, ready)
    stream.check(0, 1)


def a_rival_commits_while_a_driver_fences(_: KafkaBroker, place: KafkaPlace) -> None:
    """The rival runs when the driver has asked for its producer, which is before the driver's fence."""
    stream = test_topics.suite_stream(place)
    stream.run(0)
    sink = place.sink()
    transaction, ready = stream.prepare(sink, 1)
    sink.close()
    sound, ran = Clients.producer, list[bool]()

    def producer(self: Clients, *arguments: Any) -> Producer:
        if not ran:
            ran.append(True)
            stream.run(1)
        return sound(self, *arguments)

    with patch.object(Clients, "producer", producer):
        sink.commit(transaction, ready)
    stream.check(0, 1)


def an_answer_is_lost(_: KafkaBroker, place: KafkaPlace) -> None:
    """The commit took effect, and its answer never came."""
    stream, sink = test_topics.suite_stream(place), place.sink()
    stream.run(0, sink=sink)
    lost = _once(CommitAnswered, TimeoutError("the answer is lost"))
    with patch.object(sink, "_effects", _effects(lost)):
        stream.run(1, sink=sink)
    stream.check(0, 1)
    stream.goes_on(2, sink=sink)


def a_driver_dies_after_the_answer(_: KafkaBroker, place: KafkaPlace) -> None:
    stream, sink = test_topics.suite_stream(place), place.sink()
    stream.run(0, sink=sink)
    with patch.object(sink, "_effects", _effects(_once(CommitAnswered, Died()))), pytest.raises(Died):
        stream.run(1, sink=sink)
    stream.run(1)
    stream.check(0, 1)


def a_commit_is_called_twice(_: KafkaBroker, place: KafkaPlace) -> None:
    stream, sink = test_topics.suite_stream(place), place.sink()
    transaction, ready = stream.prepare(sink, 0)
    sink.commit(transaction, ready)
    sink.commit(transaction, ready)
    stream.check(0)


def _on_place(test: Callable[[KafkaPlace], None]) -> Scenario:
    return lambda _, place: test(place)


def _on_table(test: Callable[..., None], **arguments: Any) -> Scenario:
    return lambda broker, place: test(broker, place.staging, **arguments)


def _once(kind: type, error: BaseException) -> Listener:
    raised: list[bool] = []

    def listener(event: Any) -> None:
        if isinstance(event, kind) and not raised:
            raised.append(True)
            raise error

    return listener


def _effects(listener: Listener) -> Effects:
    return replace(Effects(), emit=Listeners(log=lambda _: None, failpoints=listener))


@dataclass(frozen=True)
class SeededBug:
    put_in: Bug
    seen_by: Scenario


BUGS = (
    SeededBug(no_producer_fences_another, two_drivers_commit_one_batch),
    SeededBug(the_ledger_is_read_before_the_fence, a_rival_commits_while_a_driver_fences),
    SeededBug(a_session_goes_on_after_a_failure, an_answer_is_lost),
    SeededBug(a_commit_is_not_remembered, a_commit_is_called_twice),
    SeededBug(the_ledger_has_a_transaction_of_its_own, a_driver_dies_after_the_answer),
    SeededBug(
        a_read_ends_before_open_transactions,
        _on_place(test_topics.test_a_driver_reads_a_ledger_that_somebody_elses_transaction_hides_only_after_it_ended),
    ),
    SeededBug(topics_are_known_by_their_names, _on_place(test_topics.test_a_topic_that_was_created_again_is_refused)),
    SeededBug(damage_is_passed_by, _on_place(test_topics.test_a_tombstone_in_the_ledger_topic_is_damage)),
    SeededBug(
        rows_are_not_measured,
        _on_place(test_topics.test_a_row_that_is_larger_than_the_topic_accepts_is_refused_with_nothing_sent),
    ),
    SeededBug(
        deletes_of_earlier_batches_count_again,
        _on_table(test_outbox.test_a_topic_follows_a_table_of_changes_batch_by_batch, seed=0),
    ),
    SeededBug(
        a_replaced_row_is_taken_for_a_deleted_one,
        _on_table(test_outbox.test_a_topic_follows_a_table_of_changes_batch_by_batch, seed=1),
    ),
    SeededBug(
        an_outbox_remembers_its_own_position,
        _on_table(test_outbox.test_two_outboxes_of_one_name_produce_each_batch_once),
    ),
)


@pytest.fixture
def place(broker: KafkaBroker, tmp_path: Path) -> KafkaPlace:
    name = f"m{uuid4().hex[:20]}"
    broker.create_topic(name, 1)
    return KafkaPlace(broker.bootstrap, name, tmp_path)


SCENARIOS = (
    two_drivers_commit_one_batch,
    a_rival_commits_while_a_driver_fences,
    an_answer_is_lost,
    a_commit_is_called_twice,
    a_driver_dies_after_the_answer,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_sound_sink_passes(broker: KafkaBroker, place: KafkaPlace, scenario: Scenario) -> None:
    scenario(broker, place)


def test_an_outcome_that_stays_unknown_is_told_and_the_restart_resolves_it(place: KafkaPlace) -> None:
    """The answer is lost, and after that no fence succeeds."""
    stream, sink = test_topics.suite_stream(place), place.sink()
    stream.run(0, sink=sink)
    gone = CatalogError("KAFKA_UNREACHABLE", "The Kafka cluster does not answer.", action="Wait.")
    lost = _effects(_once(CommitAnswered, TimeoutError("the answer is lost")))
    few = RetryPolicy(num_retries=1, min_wait_ms=1)
    transaction, ready = stream.prepare(sink, 1)
    with (
        patch.object(sink, "_effects", lost),
        patch.object(sink, "retry", few),
        patch.object(KafkaTarget, "fence", side_effect=gone),
        pytest.raises(CommitUnresolved) as unresolved,
    ):
        sink.commit(transaction, ready)
    assert "It is unknown whether it is committed" in unresolved.value.data
    assert isinstance(stream.run(1, sink=sink), AlreadyCommitted)
    stream.check(0, 1)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.put_in.__name__)
def test_a_seeded_bug_is_seen(broker: KafkaBroker, place: KafkaPlace, bug: SeededBug) -> None:
    seen = (AssertionError, BatchRefused, KafkaException, pytest.fail.Exception)
    with bug.put_in(), pytest.raises(seen) as found:
        bug.seen_by(broker, place)
    print(f"{bug.put_in.__name__}: {str(found.value)[:300]}")
