"""Streams from a Kafka topic: transactions that fill it, drivers that die, and who counts what arrived."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
from confluent_kafka import KafkaError, Message, Producer
from pyiceberg.avro.encoder import BinaryEncoder

from lakesink_protocol.ledger import mark_of
from proof.oracle import Key, Rows
from servers.jars import KAFKA_SPARK, fetched
from testkit.harness import PATIENCE_SECONDS, Stream, added_files, live_files

DRIVER = Path(__file__).with_name("kafka_driver.py")
BEGINNING = datetime(2026, 11, 21)  # noqa: DTZ001 - in UTC, as a reader without zones tells it
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - likewise
SCHEMAS = {
    "json": "id long, at timestamp, amount decimal(12, 2), name string",
    "avro": json.dumps(
        {
            "type": "record",
            "name": "order",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
                {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
                {"name": "name", "type": "string"},
            ],
        }
    ),
}
Content = tuple[int, datetime, Decimal, str] | tuple[None, None, None, None]


def content_of(number: int) -> Content:
    """What a record of this number tells; some are tombstones, which have no value."""
    if number % 50 == 7:
        return None, None, None, None
    return (
        number,
        BEGINNING + timedelta(microseconds=number * 1_000_001),
        Decimal(number * 7 - 300) / 100,
        f"Nº {number}",
    )


def json_record(number: int) -> bytes | None:
    told, at, amount, name = content_of(number)
    if at is None:
        return None
    return json.dumps({"id": told, "at": f"{at.isoformat()}Z", "amount": str(amount), "name": name}).encode()


def avro_record(number: int) -> bytes | None:
    told, at, amount, name = content_of(number)
    if told is None or at is None or amount is None or name is None:
        return None
    written = BytesIO()
    encoder = BinaryEncoder(written)
    encoder.write_int(told)
    encoder.write_int((at - EPOCH) // timedelta(microseconds=1))
    encoder.write_bytes(int(amount * 100).to_bytes(8, "big", signed=True))
    encoder.write_utf8(name)
    return written.getvalue()


RECORDS = {"json": json_record, "avro": avro_record}


@dataclass(slots=True)
class Transactions:
    """A producer that writes numbered records in transactions, and knows where each has come to lie.

    Attributes:
        bootstrap: The broker.
        topic: The topic.
        form: ``json`` or ``avro``.
        committed: Number of every committed record by partition and offset.
        aborted: The same of those that were taken back.
    """

    bootstrap: str
    topic: str
    form: str = "json"
    committed: dict[Key, int] = field(default_factory=dict)
    aborted: dict[Key, int] = field(default_factory=dict)
    _open: dict[Key, int] = field(default_factory=dict)
    _producer: Producer | None = None

    def begin(self, numbers: Iterable[int], partitions: int) -> None:
        """Write records, in turn to each partition, and leave their transaction open."""
        producer = self._started()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(producer.list_topics(self.topic, PATIENCE_SECONDS).topics[self.topic].partitions) < partitions:
            assert time.monotonic() < deadline, f"{self.topic} never had {partitions} partitions"
            time.sleep(0.1)  # a producer learns of new partitions by asking
        producer.begin_transaction()
        for number in numbers:
            producer.produce(
                self.topic,
                RECORDS[self.form](number),
                partition=number % partitions,
                on_delivery=partial(self._delivered, number),
            )
        producer.flush(PATIENCE_SECONDS)

    def commit(self) -> None:
        self._started().commit_transaction(PATIENCE_SECONDS)
        self.committed |= self._open
        self._open = {}

    def abort(self) -> None:
        self._started().abort_transaction(PATIENCE_SECONDS)
        self.aborted |= self._open
        self._open = {}

    def write(self, numbers: Iterable[int], partitions: int) -> None:
        """One committed transaction."""
        self.begin(numbers, partitions)
        self.commit()

    def take_back(self, numbers: Iterable[int], partitions: int) -> None:
        """One aborted transaction."""
        self.begin(numbers, partitions)
        self.abort()

    def _started(self) -> Producer:
        if self._producer is None:
            own = {"bootstrap.servers": self.bootstrap, "transactional.id": self.topic, "log_level": 0}
            self._producer = Producer({**own, "transaction.timeout.ms": 300_000})
            self._producer.init_transactions(PATIENCE_SECONDS)
        return self._producer

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self._open[partition, offset] = number


@dataclass(frozen=True)
class KafkaStream(Stream):
    """One stream of one topic into one table; every row is (partition, offset) and what the record told."""

    program: Path = DRIVER
    table: str = "demo.orders"
    sink_id: str = "orders"
    bootstrap: str = ""
    topic: str = ""
    form: str = "json"
    source: Mapping[str, str] = field(default_factory=lambda: {"kafka.isolation.level": "read_committed"})

    def config(self) -> dict[str, Any]:
        own = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, "startingOffsets": "earliest"}
        jars = ",".join(map(str, fetched(KAFKA_SPARK)))
        return {
            "conf": {**self.conf, "spark.master": self.master, "spark.jars": jars},
            "source": {**own, **self.source},
            "form": self.form,
            "schema": SCHEMAS[self.form],
            "table": self.table,
            "sink_id": self.sink_id,
            "checkpoint": str(self.checkpoint),
        }

    def told(self) -> list[tuple[Key, Content]]:
        """Every row of the table, as DuckDB reads it."""
        table = self.load()
        head = table.current_snapshot()
        return _read(live_files(table, head.snapshot_id)) if head else []

    def batches(self) -> dict[int, "Landed"]:
        """Every batch by its id, from the snapshots that bear a mark."""
        table = self.load()
        marked = ((mark_of(snapshot.summary), snapshot.snapshot_id) for snapshot in table.metadata.snapshots)
        return {
            mark.batch_id: Landed(
                mark.outcome,
                _ends(json.loads(mark.offsets), self.topic),
                Counter(key for key, _ in _read(sorted(added_files(table, snapshot_id)))),
            )
            for mark, snapshot_id in marked
            if mark is not None
        }

    def logged_offsets(self, batch_id: int) -> dict[int, int]:
        """Where Spark's own log says that the batch ended, by partition."""
        lines = (self.checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
        return _ends([json.loads(line) for line in lines[2:]], self.topic)


@dataclass(frozen=True, slots=True)
class Landed:
    """One batch in the table.

    Attributes:
        outcome: As its snapshot has it.
        ends: Where it ended, by partition, as its snapshot has it.
        rows: Of its own files.
    """

    outcome: str
    ends: dict[int, int]
    rows: Rows


def between(keys: Iterable[Key], start: Mapping[int, int], end: Mapping[int, int]) -> Rows:
    """Records from one place in the topic up to another; a partition that is new begins at 0."""
    return Counter(key for key in keys if start.get(key[0], 0) <= key[1] < end.get(key[0], 0))


def _ends(sources: Sequence[Any], topic: str) -> dict[int, int]:
    """Offsets of the one source that there is."""
    [topics] = sources
    return {int(partition): offset for partition, offset in topics[topic].items()}


def _read(paths: Sequence[str]) -> list[tuple[Key, Content]]:
    if not paths:
        return []
    wanted = 'select "partition", "offset", id, "at" at time zone \'UTC\', amount, name from read_parquet(?)'
    found = duckdb.execute(wanted, [[path.removeprefix("file://") for path in paths]]).fetchall()
    return [((row[0], row[1]), (row[2], row[3], row[4], row[5])) for row in found]
