"""Produces the records of staged rows into an open transaction, in the order of the rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakesink.sinks.kafka.target import Session

WAIT_SECONDS = 0.1
UNASSIGNED = -1


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
            else:
                return


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
