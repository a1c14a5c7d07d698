"""The cluster as the sink sees it: one producer, and the ledger as it was read after this producer fenced all others.

Only producers with the sink's transactional id write its ledger topic. So what was read after `init_transactions` stays
true until another driver calls it, and then no transaction of this producer can be committed. One transaction has the
records of rows in their order, and the record for the ledger.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from lakesink.sinks.kafka.clients import Clients, Undelivered, kafka_error
from lakesink.sinks.kafka.commit_record import CommitRecord, LedgerState
from lakesink.sinks.kafka.failures import NotDelivered, final_error
from lakesink.sinks.kafka.topics import LedgerTopic, TopicFacts, Topics, ledger_topic
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.events import CommitAnswered, CommitDue, Listener
from lakesink_protocol.fence import is_of_the_program, not_sent
from lakesink_protocol.identity import digest

INIT_SECONDS = 60
COMMIT_SECONDS = 60
ABORT_SECONDS = 10
READ_TRIES = 3
FLUSH_SECONDS = 0.5
"""So often is a producer asked whether it was fenced: then its queued records stay where they are."""
WAIT_SECONDS = 0.1
UNASSIGNED = -1


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

    def send(self, rows: pa.RecordBatch, topic: str) -> None:
        """Queue the rows, each for its own topic if this one is empty; raises once a record was not delivered."""
        for of_row, record in _records(rows, topic):
            self.queue(of_row, record)
        self.poll()

    def queue(self, topic: str, record: Mapping[str, Any]) -> None:
        """Queue one record; waits while the queue is full."""
        while True:
            try:
                self.producer.produce(topic, **record)
            except BufferError:
                self.poll(WAIT_SECONDS)
            except KafkaException as error:
                found = kafka_error(error)
                if found is None or found.code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                size = len(record.get("key") or b"") + len(record["value"] or b"")
                raise NotDelivered(Undelivered(found, topic, size)) from error
            else:
                return

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


def commit_rows(
    target: KafkaTarget, session: Session, rows: Iterable[pa.RecordBatch], record: CommitRecord, emit: Listener
) -> None:
    """Commit rows and their ledger record; then the target goes on with the session.

    After any exception the outcome is unknown, unless it is a `LakesinkError`: then nothing was committed.
    """
    session.producer.begin_transaction()
    try:
        for some in rows:
            session.send(some, target.topic)
        session.queue(ledger_topic(target.sink_id), {"key": target.sink_id.encode(), "value": record.to_bytes()})
        session.flush(target.clients.transaction_timeout_ms / 1000)
    except Exception as error:
        if isinstance(error, LakesinkError):
            final: LakesinkError | None = error
        else:
            final = not_sent(error) if is_of_the_program(error) else final_error(error, target.clients)
        if final is None:
            raise
        with suppress(KafkaException):  # the next fence ends the transaction
            session.producer.abort_transaction(ABORT_SECONDS)
        raise final from None
    emit(CommitDue(record.batch.batch_id))
    session.producer.commit_transaction(COMMIT_SECONDS)
    emit(CommitAnswered(record.batch.batch_id))
    target.landed(session, record)


def _records(rows: pa.RecordBatch, topic: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Topic and fields of each row's record."""
    names = [name for name in rows.schema.names if name != "topic"]
    columns = [_values(name, rows.column(name)) for name in names]
    topics = [topic] * rows.num_rows if topic else rows.column("topic").to_pylist()
    for of_row, *values in zip(topics, *columns, strict=True):
        yield of_row, dict(zip(names, values, strict=True))


def _values(name: str, column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if name == "partition":
        return [UNASSIGNED if value is None else value for value in values]
    if name == "headers":
        return [[(header["key"], header["value"]) for header in value or ()] for value in values]
    return values
