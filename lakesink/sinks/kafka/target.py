"""The cluster as the sink sees it: one producer, and the ledger as it was read after this producer fenced all others.

Only producers with the sink's transactional id write its ledger topic. So what was read after `init_transactions` stays
true until another driver calls it, and then no transaction of this producer can be committed.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from confluent_kafka import KafkaError, KafkaException, Producer

from lakesink.sinks.kafka.clients import Clients, Undelivered
from lakesink.sinks.kafka.commit_record import CommitRecord, LedgerState
from lakesink.sinks.kafka.failures import NotDelivered
from lakesink.sinks.kafka.ledger_topic import LedgerTopic, ledger_topic
from lakesink.sinks.kafka.topics import TopicFacts, Topics
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.identity import digest

INIT_SECONDS = 60
COMMIT_SECONDS = 60
ABORT_SECONDS = 10
READ_TRIES = 3
FLUSH_SECONDS = 0.5
"""So often is a producer asked whether it was fenced: then its queued records stay where they are."""


class FenceFailed(Exception):
    """No fence succeeded after a transaction whose outcome is unknown."""


@dataclass(slots=True, eq=False)
class Session:
    """A producer that fenced every older one of its sink, and the records that it could not deliver."""

    producer: Producer
    failures: list[Undelivered] = field(default_factory=list)

    def poll(self, seconds: float = 0) -> None:
        """Serve the producer's answers; raises if a record was not delivered, or if the producer was fenced."""
        with _answers():
            self.producer.poll(seconds)
        self._check()

    def flush(self, seconds: float) -> None:
        """Wait until the cluster has every record of the open transaction."""
        deadline = time.monotonic() + seconds
        left = 1
        while left:
            with _answers():
                left = self.producer.flush(FLUSH_SECONDS)
            self._check()
            if left and time.monotonic() > deadline:
                raise TimeoutError(f"{left} records were not delivered in {seconds:g} seconds")

    def _check(self) -> None:
        if self.failures:
            raise NotDelivered(self.failures[0])


@contextmanager
def _answers() -> Iterator[None]:
    """The client raises that it was fenced, and calls its callbacks with this exception set, which Python reports."""
    try:
        yield
    except SystemError as error:
        raise error.__cause__ or KafkaException(KafkaError(KafkaError._FENCED)) from None  # noqa: SLF001 - a public code


class KafkaTarget:
    """The topic of one sink, and its ledger. `topic` is empty if the rows name their topics."""

    def __init__(self, clients: Clients, sink_id: str, topic: str) -> None:
        self.clients, self.sink_id, self.topic = clients, sink_id, topic
        self._session: Session | None = None
        self._facts: TopicFacts | None = None

    def take_session(self, attempt: int) -> Session:
        """The session for one transaction. It is given back only if the transaction was committed: see `landed`.

        Raises:
            FenceFailed: The outcome of an earlier attempt stays unknown, because no fence succeeds after it.
        """
        try:
            if self._session is None:
                self.fence()
        except LakesinkError as error:
            if attempt == 1:
                raise
            raise FenceFailed(error.what) from error
        session, self._session = self._session, None
        assert session is not None
        return session

    def landed(self, session: Session, record: CommitRecord) -> None:
        """Go on with a session whose transaction was committed: its record is the newest one."""
        self._session, self._ledger.record = session, record

    @property
    def state(self) -> LedgerState:
        """The ledger as it was read last."""
        topic_id = "" if self._facts is None else self._facts.topic_id
        ids = {self.topic: topic_id, ledger_topic(self.sink_id): self._ledger.topic_id}
        return LedgerState(self._ledger.record, digest(ids), self._ledger.damage)

    @property
    def most_bytes(self) -> int:
        """The largest record, uncompressed, that producer and topic take."""
        of_topic = [] if self._facts is None else [self._facts.max_message_bytes]
        return min([self.clients.max_message_bytes, *of_topic])

    @property
    def partitions(self) -> int | None:
        """Partitions of the topic; None if the rows name their topics."""
        return None if self._facts is None else self._facts.partitions

    def read(self) -> LedgerState:
        """The ledger now, read to its end; fences other drivers at the start, and if a transaction stays open."""
        if self._session is None:
            return self.fence()
        self._look_at_topic()
        return self.state if self._ledger.read() else self.fence()

    def fence(self) -> LedgerState:
        """End what an older driver left open, so that none can commit any more, and read the ledger after that."""
        self._session = None
        self._look_at_topic()
        failures: list[Undelivered] = []
        producer = self.clients.producer(f"lakesink-{self.sink_id}", failures, self.most_bytes)
        producer.init_transactions(INIT_SECONDS)
        for _ in range(READ_TRIES):
            if self._ledger.read():
                self._session = Session(producer, failures)
                return self.state
        raise TimeoutError(f"somebody else has a transaction open in {self._ledger.topic}")

    def facts(self, topic: str) -> TopicFacts:
        """The facts about a topic that rows name."""
        return self._topics.facts(topic)

    def close(self) -> None:
        """End all clients."""
        self._session = None
        self._ledger.close()

    def _look_at_topic(self) -> None:
        if self.topic and (self._facts is None or self._topics.id_of(self.topic) != self._facts.topic_id):
            self._facts = self._topics.facts(self.topic)

    @cached_property
    def _topics(self) -> Topics:
        return Topics(self.clients.admin())

    @cached_property
    def _ledger(self) -> LedgerTopic:
        return LedgerTopic(self.clients, self._topics, self.sink_id)
