"""Facts about topics, and the creation of the ledger topic."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from lakesink.sinks.kafka.clients import kafka_error
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.redact import shown

PATIENCE_SECONDS = 30
_PAUSE_SECONDS = 0.1
_OF_THE_BROKER = -1
_PASSING = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
"""A topic that was created just now, or whose broker has changed, has no leader for a moment."""
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as it is now; `topic_id` is empty on a cluster that gives no ids."""

    name: str
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
        found = self._described(name)
        if found is None:
            raise CatalogError.of("KAFKA_TOPIC_MISSING", topic=shown(name, 249))
        resource = ConfigResource(ResourceType.TOPIC, name)  # a broker may not know one that was created just now
        unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
        config = _patient(lambda: self.admin.describe_configs([resource])[resource], unknown)
        return TopicFacts(
            name=name,
            topic_id=_id_of(found),
            partitions=len(found.partitions),
            max_message_bytes=int(config["max.message.bytes"].value),
            cleanup_policy=str(config["cleanup.policy"].value),
        )

    def id_of(self, name: str) -> str:
        """The id that the cluster gave a topic; raises CatalogError if it does not exist."""
        found = self._described(name)
        if found is None:
            raise CatalogError.of("KAFKA_TOPIC_MISSING", topic=shown(name, 249))
        return _id_of(found)

    def ledger(self, name: str) -> str:
        """The id of the ledger topic, which is created if it is missing, and checked if it is not ours."""
        if self._described(name) is None:
            self._create_ledger(name)
        facts = self.facts(name)
        if facts.cleanup_policy != "compact":
            raise CatalogError.of(
                "KAFKA_LEDGER_UNUSABLE",
                topic=shown(name, 100),
                why=f"has cleanup.policy={facts.cleanup_policy}, and would lose the ledger",
            )
        if facts.partitions != 1:
            raise CatalogError.of(
                "KAFKA_LEDGER_UNUSABLE", topic=shown(name, 100), why=f"has {facts.partitions} partitions, and not one"
            )
        return facts.topic_id

    def end_of(self, topic: str) -> int:
        """The end of a topic's first partition, behind records of open transactions."""
        place = TopicPartition(topic, 0)
        uncommitted = IsolationLevel.READ_UNCOMMITTED
        wanted = {place: OffsetSpec.latest()}
        return int(_patient(lambda: self.admin.list_offsets(wanted, isolation_level=uncommitted)[place]).offset)

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
