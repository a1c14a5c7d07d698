"""A stream of Debezium's events into a table with a key, without Spark: what its tasks and its driver make of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Vote, Votes, receipts_of
from testkit.builders import Stream

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "version", LongType()),
    NestedField(3, "name", StringType()),
    NestedField(4, "_kafka_offset", LongType()),
    NestedField(5, "_kafka_partition", IntegerType()),
    identifier_field_ids=[1],
)
RECORDS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
Record = tuple[int, int, Any]
"""Partition, offset, document: bytes are one as they are."""


@dataclass(slots=True)
class EventStream(Stream):
    """Batches of one driver."""

    driver: IcebergSink = field(init=False)

    def __post_init__(self) -> None:
        Stream.__post_init__(self)
        self.options = {"mode": "changes", "keys": "id", "decode": "debezium-json"} | self.options
        self.restart()

    def restart(self) -> None:
        """A new driver."""
        sink = self.sink()
        self.driver = IcebergSink(sink.table, sink.key, sink.open_catalog, sink.settings, RECORDS, effects=sink.effects)

    def take(self, batch: Batch | int, *tasks: Sequence[Record]) -> Outcome:
        """Run a batch with these records in its tasks."""

        def job(writers: Mapping[str, TaskWriter]) -> Votes:
            [(name, writer)] = writers.items()
            written = [writer.write(task, iter([_batch(records)])) for task, records in enumerate(tasks)]
            return Votes(len(tasks), [Vote(task, receipts_of(name, writer, one)) for task, one in enumerate(written)])

        found = self.batch(batch) if isinstance(batch, int) else batch
        return run_batch(found, [self.driver], job)[self.driver.name]


def written(document: Any) -> bytes:
    """The document as it is in Kafka."""
    return document if isinstance(document, bytes) else json.dumps(document).encode()


def _batch(records: Sequence[Record]) -> pa.RecordBatch:
    rows = [
        {"value": written(document), "topic": "t", "partition": partition, "offset": offset}
        for partition, offset, document in records
    ]
    return pa.RecordBatch.from_pylist(rows, RECORDS)
