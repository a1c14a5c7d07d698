"""Reads the ledger topic of one sink: one partition, of which only the newest record counts.

A read ends where the partition ended when it began, behind the records of open transactions. If such a transaction is
open, the read is incomplete: the newest record may be one that is committed, and not shown yet.
"""

import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lakesink.sinks.kafka.clients import Clients
from lakesink.sinks.kafka.commit_record import CommitRecord, RecordDamaged, parse_commit_record
from lakesink.sinks.kafka.topics import PATIENCE_SECONDS, Topics

PENDING_SECONDS = 1.0
"""For so long, a transaction that is open is taken for one whose end is being written to the partitions."""
_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001 - a public code


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
