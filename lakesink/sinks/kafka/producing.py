"""One transaction: the records of rows in their order, the record for the ledger, and the commit."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from lakesink.sinks.kafka.clients import Undelivered, kafka_error
from lakesink.sinks.kafka.commit_record import CommitRecord
from lakesink.sinks.kafka.failures import NotDelivered, final_error
from lakesink.sinks.kafka.ledger_topic import ledger_topic
from lakesink.sinks.kafka.target import ABORT_SECONDS, COMMIT_SECONDS, KafkaTarget, Session
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.events import CommitAnswered, CommitDue, Listener
from lakesink_protocol.fence import is_of_the_program, not_sent

WAIT_SECONDS = 0.1
UNASSIGNED = -1


def commit_rows(
    target: KafkaTarget, session: Session, rows: Iterable[pa.RecordBatch], record: CommitRecord, emit: Listener
) -> None:
    """Commit rows and their ledger record; then the target goes on with the session.

    After any exception the outcome is unknown, unless it is a `LakesinkError`: then nothing was committed.
    """
    session.producer.begin_transaction()
    try:
        _send(target, session, rows, record)
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


def _send(target: KafkaTarget, session: Session, rows: Iterable[pa.RecordBatch], record: CommitRecord) -> None:
    """Wait until the cluster has all records of the transaction."""
    records = Records(session, target.topic)
    for some in rows:
        records.send(some)
    records.queue(ledger_topic(target.sink_id), {"key": target.sink_id.encode(), "value": record.to_bytes()})
    session.flush(target.clients.transaction_timeout_ms / 1000)


@dataclass(frozen=True, slots=True)
class Records:
    """Sends records into the open transaction of a session. `topic` is empty if each row names its own."""

    session: Session
    topic: str

    def send(self, rows: pa.RecordBatch) -> None:
        """Queue the rows; raises NotDelivered once the cluster has refused a record."""
        for topic, record in _records(rows, self.topic):
            self.queue(topic, record)
        self.session.poll()

    def queue(self, topic: str, record: Mapping[str, Any]) -> None:
        """Queue one record; waits while the queue is full."""
        while True:
            try:
                self.session.producer.produce(topic, **record)
            except BufferError:
                self.session.poll(WAIT_SECONDS)
            except KafkaException as error:
                _raise_with_size(error, topic, record)
                raise
            else:
                return


def _raise_with_size(error: KafkaException, topic: str, record: Mapping[str, Any]) -> None:
    """Raise NotDelivered if the record is too large for the producer."""
    found = kafka_error(error)
    if found is not None and found.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        size = len(record.get("key") or b"") + len(record["value"] or b"")
        raise NotDelivered(Undelivered(found, topic, size)) from error


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
