"""Facts about topics, and the ledger topic of one sink: one partition, of which only the newest record counts.

A read of the ledger topic ends where the partition ended when it began, behind the records of open transactions. If
such a transaction is open, the read is incomplete: the newest record may be one that is committed, and not shown yet.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from lakesink.sinks.kafka.clients import Clients, kafka_error
from lakesink.sinks.kafka.commit_record import CommitRecord, RecordDamaged, parse_commit_record
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.redact import shown

PATIENCE_SECONDS = 30
_PAUSE_SECONDS = 0.1
PENDING_SECONDS = 1.0
"""For so long, a transaction that is open is taken for one whose end is being written to the partitions."""
_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001 - a public code
_OF_THE_BROKER = -1
_PASSING = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
"""A topic that was created just now, or whose broker has changed, has no leader for a moment."""
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as it is now; `topic_id` is empty on a cluster that gives no ids."""

    topic_id: str
    partitions: int
    max_message_bytes: int
    cleanup_policy: str


@dataclass(frozen=True, slots=True)
class Topics:
    """Asks a cluster about topics."""

    admin: AdminClient

    def facts(self, name: str) -> TopicFacts:
        """The facts about a topic; raises CatalogError if it does not exist."""
        found = self._existing(name)
        resource = ConfigResource(ResourceType.TOPIC, name)  # a broker may not know one that was created just now
        unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
        config = _patient(lambda: self.admin.describe_configs([resource])[resource], unknown)
        return TopicFacts(
            topic_id=_id_of(found),
            partitions=len(found.partitions),
            max_message_bytes=int(config["max.message.bytes"].value),
            cleanup_policy=str(config["cleanup.policy"].value),
        )

    def id_of(self, name: str) -> str:
        """The id that the cluster gave a topic; raises CatalogError if it does not exist."""
        return _id_of(self._existing(name))

    def ledger(self, name: str) -> str:
        """The id of the ledger topic, which is created if it is missing, and checked if it is not ours."""
        if self._described(name) is None:
            self._create_ledger(name)
        facts, why = self.facts(name), ""
        if facts.cleanup_policy != "compact":
            why = f"has cleanup.policy={facts.cleanup_policy}, and would lose the ledger"
        elif facts.partitions != 1:
            why = f"has {facts.partitions} partitions, and not one"
        if why:
            raise CatalogError.of("KAFKA_LEDGER_UNUSABLE", topic=shown(name, 100), why=why)
        return facts.topic_id

    def end_of(self, topic: str) -> int:
        """The end of a topic's first partition, behind records of open transactions."""
        place = TopicPartition(topic, 0)
        uncommitted = IsolationLevel.READ_UNCOMMITTED
        wanted = {place: OffsetSpec.latest()}
        return int(_patient(lambda: self.admin.list_offsets(wanted, isolation_level=uncommitted)[place]).offset)

    def _existing(self, name: str) -> Any:
        found = self._described(name)
        if found is None:
            raise CatalogError.of("KAFKA_TOPIC_MISSING", topic=shown(name, 249))
        return found

    def _described(self, name: str) -> Any | None:
        try:
            return _patient(lambda: self.admin.describe_topics(TopicCollection([name]))[name])
        except KafkaException as error:
            if _code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise

    def _create_ledger(self, name: str) -> None:
        topic = NewTopic(name, 1, _OF_THE_BROKER, config={"cleanup.policy": "compact"})
        try:
            _result(self.admin.create_topics([topic])[name])
        except KafkaException as error:
            if _code(error) != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._described(name) is None and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)


def ledger_topic(sink_id: str) -> str:
    """The name of a sink's ledger topic. Each sink has its own: a dead driver of one hides the end of no other."""
    return f"lakesink-ledger-{sink_id}"


@dataclass(slots=True, eq=False)
class LedgerTopic:
    """The newest record of one sink; `damage` says why it cannot be used."""

    clients: Clients
    topics: Topics
    sink_id: str
    record: CommitRecord | None = None
    damage: str = ""
    topic_id: str | None = field(default=None, init=False)
    _consumer: Consumer | None = field(default=None, init=False)
    _position: int = field(default=0, init=False)

    @property
    def topic(self) -> str:
        """Its name."""
        return ledger_topic(self.sink_id)

    def read(self) -> bool:
        """Read on to the end; False if a transaction stays open. Starts again in a topic that was created again."""
        topic_id = self.topics.ledger(self.topic)
        end = self.topics.end_of(self.topic)
        if topic_id != self.topic_id or end < self._position:
            self._position, self.record, self.damage, self.topic_id = 0, None, "", topic_id
        deadline = time.monotonic() + PENDING_SECONDS
        while self._position < end:
            if not self._read_to_eof() and time.monotonic() > deadline:
                return False
        return True

    def close(self) -> None:
        """End the consumer; a later read opens another one."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _read_to_eof(self) -> bool:
        """Read the records that are committed; False if there are none."""
        start = self._position
        self._consumer = self._consumer or self.clients.consumer()
        self._consumer.assign([TopicPartition(self.topic, 0, start)])
        while True:
            message = self._consumer.poll(PATIENCE_SECONDS)
            if message is None:
                raise TimeoutError("the ledger topic could not be read in time")
            error, offset = message.error(), message.offset()
            if error is None and offset is not None:
                self._take(message.key(), message.value())
                self._position = offset + 1
            elif error is not None and error.code() == _EOF:
                self._position = max(self._position, offset or 0)
                return self._position > start
            elif error is not None:
                raise KafkaException(error)

    def _take(self, key: bytes | str | None, value: bytes | str | None) -> None:
        assert not isinstance(value, str), "the consumer decodes nothing"
        self.damage = "" if key == self.sink_id.encode() else "its newest record has another key"
        try:
            self.record = parse_commit_record(value, self.sink_id)
        except RecordDamaged as damage:
            self.damage = self.damage or str(damage)


def _id_of(described: Any) -> str:
    """Kafka has ids of topics since 2.8; before, all bits are zero."""
    topic_id = described.topic_id
    empty = topic_id is None or not (topic_id.get_most_significant_bits() or topic_id.get_least_significant_bits())
    return "" if empty else str(topic_id)


def _patient(ask: "Callable[[], Future[R]]", *passing: int) -> R:
    """The answer to a question, asked again while its error is one that passes by itself."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return _result(ask())
        except KafkaException as error:
            if _code(error) not in {*_PASSING, *passing} or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)


def _result(answer: "Future[R]") -> R:
    try:
        return answer.result(PATIENCE_SECONDS)
    except FutureTimeoutError:
        raise TimeoutError("the cluster did not answer in time") from None


def _code(error: KafkaException) -> int | None:
    found = kafka_error(error)
    return None if found is None else found.code()
