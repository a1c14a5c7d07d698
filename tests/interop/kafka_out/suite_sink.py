"""The Kafka sink for the suite, whose rows are two whole numbers, and a reader of what it committed.

Light, for each process of the suite imports it.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from lakesink.sinks.kafka.commit_record import CommitRecord
from lakesink.sinks.kafka.kafka_sink import KafkaSink
from lakesink.sinks.staged.sink import StagedTransaction
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted
from lakesink_protocol.two_phase import TaskWriter

PATIENCE_SECONDS = 30
MARKERS_SECONDS = 0.4
"""Kafka writes the end of a transaction to the partitions a little after its answer to the commit."""

Record = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class KafkaPlace:
    """A topic of one partition, and a staging folder: the target of one test."""

    bootstrap: str
    name: str
    staging: Path

    def sink(self) -> KafkaSink:
        return SuiteSink(self.bootstrap, sink_id=self.name, staging=self.staging, topic=self.name)


@dataclass(frozen=True, slots=True)
class RowsAsRecords:
    """Writes the suite's rows as JSON values."""

    writer: TaskWriter

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        return self.writer.write(task, map(as_values, batches))


def as_values(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"value": [json.dumps([row["batch"], row["position"]]) for row in rows.to_pylist()]})


class SuiteSink(KafkaSink):
    """The sink, with rows of the suite."""

    def begin(self, batch: Batch) -> StagedTransaction[CommitRecord] | AlreadyCommitted:
        begun = super().begin(batch)
        if isinstance(begun, AlreadyCommitted) or begun.writer is None:
            return begun
        return replace(begun, writer=RowsAsRecords(begun.writer))


class Reader:
    """Reads the committed records of a topic, from its beginning, as a consumer with read_committed sees them."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )

    def records(self, topic: str) -> list[Record]:
        """Key and value of every record that is committed, partition by partition."""
        metadata = self._consumer.list_topics(topic, PATIENCE_SECONDS)
        found = metadata.topics[topic].partitions
        return [record for partition in sorted(found) for record in self.of_partition(topic, partition)]

    def of_partition(self, topic: str, partition: int) -> list[Record]:
        return [(_bytes(message.key()), _bytes(message.value())) for message in self._messages(topic, partition)]

    def headers(self, topic: str) -> list[Any]:
        """The headers of every record in the first partition, None where there are none."""
        return [message.headers() for message in self._messages(topic, 0)]

    def _messages(self, topic: str, partition: int) -> list[Message]:
        place = TopicPartition(topic, partition, 0)
        self._wait_for_markers(place)
        self._consumer.assign([place])
        return list(self._to_eof())

    def _to_eof(self) -> Iterator[Message]:
        while True:
            message = self._consumer.poll(PATIENCE_SECONDS)
            assert message is not None, "the topic could not be read"
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - a public code
                return
            else:
                raise KafkaException(error)

    def _wait_for_markers(self, place: TopicPartition) -> None:
        deadline = time.monotonic() + MARKERS_SECONDS
        ends = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        while len({self._end(place, level) for level in ends}) > 1 and time.monotonic() < deadline:
            time.sleep(0.02)

    def _end(self, place: TopicPartition, level: IsolationLevel) -> int:
        answer = self._admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)[place]
        return int(answer.result(PATIENCE_SECONDS).offset)


def _bytes(data: bytes | str | None) -> bytes | None:
    assert not isinstance(data, str)
    return data


def rows_of(records: list[Record]) -> list[tuple[int, int]]:
    """The suite's rows in the values of records."""
    return [(batch, position) for batch, position in (json.loads(value or b"") for _, value in records)]
