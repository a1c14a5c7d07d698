"""A Kafka topic of a database's changes, the drivers that follow it, and DuckDB's own answer from the topic."""

import os
import random
import runpy
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from lakesink.rows.plan import DELETED
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from servers.jars import KAFKA_SPARK, fetched
from testkit.harness import CONF, PATIENCE_SECONDS, own_group

CDC = Path(__file__).parents[2] / "examples" / "cdc"
_DATABASE = runpy.run_path(str(CDC / "database.py"))
PARTITIONS: int = _DATABASE["PARTITIONS"]
TOPIC: str = _DATABASE["TOPIC"]
TABLE = "shop.orders"
COLUMNS = pa.schema(
    [
        ("order_id", pa.int64()),
        ("region", pa.string()),
        ("state", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("updated_at", pa.timestamp("us", "UTC")),
    ]
)
ROWS, ROWS_A_CHANGE, CHANGES_A_SECOND = 600, 0.5, 20
"""Of the initial load; how many of them are sent with each change, where both overlap; and how fast it goes."""
LONGEST_WORK_SECONDS = 4.0
_RECORDS = pa.schema([("key", pa.string()), ("value", pa.string()), ("offset", pa.int64())])
ANSWER = """
    WITH events AS (SELECT key, value::JSON AS value, "offset" FROM records WHERE value IS NOT NULL),
        told AS (SELECT *, coalesce(value -> 'after' ->> 'updated_at', value -> 'before' ->> 'updated_at') AS state_at
            FROM events),
        newest AS (SELECT arg_max(value, {order}) AS value FROM told GROUP BY key),
        rows AS (SELECT value -> 'after' AS row FROM newest WHERE value ->> 'op' <> 'd')
    SELECT (row ->> 'order_id')::BIGINT AS order_id, row ->> 'region' AS region, row ->> 'state' AS state,
        (row ->> 'amount')::DECIMAL(12, 2) AS amount, (row ->> 'updated_at')::TIMESTAMPTZ AS updated_at
    FROM rows ORDER BY order_id
"""
"""The newest event of each key, without deletes."""
BY_OFFSET = '"offset"'
BY_SEQUENCE = """row(state_at::TIMESTAMPTZ, value ->> 'op' <> 'r', "offset")"""
"""What counts where load and stream overlap: the later state of a row, and of equal ones the stream's."""
Row = dict[str, Any]


@dataclass(slots=True)
class ChangedOrders:
    """A database of orders, whose changes are sent to the topic in a thread for as long as that is wanted.

    Attributes:
        bootstrap: The broker. While it is down the client tries again, and keeps the order of the records.
        chance: Draws the changes.
        overlap: True if the initial load is read beside the changes, so that its rows come late and in any order.
        failed: Records that could not be sent, in words.
    """

    bootstrap: str
    chance: random.Random
    overlap: bool
    failed: list[str] = field(default_factory=list)
    _database: Any = field(init=False)
    _over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._database = _DATABASE["Database"](self.chance)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """The database changes until the end of the block; then everything has been sent."""
        thread = threading.Thread(target=self._send, daemon=True, name="database")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), "the records cannot be sent"
        assert self.failed == []

    def rows(self) -> list[Row]:
        """The rows of the database, as the table must have them."""
        orders: list[Row] = sorted(self._database.orders.values(), key=lambda row: row["order_id"])
        typed = [
            row | {"amount": Decimal(row["amount"]), "updated_at": datetime.fromisoformat(row["updated_at"])}
            for row in orders
        ]
        return [{name: row[name] for name in COLUMNS.names} for row in typed]

    def _send(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0})
        self._database.load(ROWS)
        late = self._taken()
        self.chance.shuffle(late)
        while not self.overlap and late:  # the rows are new, so any order is that of the database
            self._produce(producer, late.pop())
        while late or not self._over.is_set():
            self._database.work(1)
            news = self._taken()
            if late and self.chance.random() < ROWS_A_CHANGE:
                news.append(late.pop())
            for record in news:
                self._produce(producer, record)
            producer.poll(0 if self._over.is_set() else 1 / CHANGES_A_SECOND)
        producer.flush(PATIENCE_SECONDS)

    def _taken(self) -> list[Row]:
        taken: list[Row] = self._database.records
        self._database.records = []
        return taken

    def _produce(self, producer: Producer, record: Row) -> None:
        key, value, partition = record["key"].encode(), record["value"], record["partition"]
        told = None if value is None else value.encode()
        producer.produce(TOPIC, told, key, partition, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.failed.append(str(error))


@dataclass(frozen=True, slots=True)
class Follower:
    """A program that follows the topic until it has all that is there now.

    Attributes:
        root: A folder of its own.
        program: Started with the broker's address.
    """

    root: Path
    program: Path
    bootstrap: str

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoints" / "orders"

    @contextmanager
    def driver(self) -> Iterator["subprocess.Popen[str]"]:
        """A driver under way; the end of the block kills all its processes."""
        conf = " ".join(f"--conf '{name}={value}'" for name, value in CONF.items())
        jars = ",".join(map(str, fetched(KAFKA_SPARK)))
        pythons = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        own = {"LAKESINK_HOME": str(self.root / "home"), "PYSPARK_SUBMIT_ARGS": f"--jars {jars} {conf} pyspark-shell"}
        command = [sys.executable, str(self.program), self.bootstrap]
        with own_group(command, self.root / "driver.log", {**os.environ, **pythons, **own}, self.root) as process:
            yield process

    def kill_at_work(self, chance: random.Random) -> None:
        """Kill a driver some time after it has planned a batch. One that ends earlier does not count: start another."""
        known = self._planned()
        while True:
            with self.driver() as driver:
                while driver.poll() is None and self._planned() == known:
                    time.sleep(0.02)
                try:
                    assert driver.wait(chance.uniform(0, LONGEST_WORK_SECONDS)) == 0, self.log()[-5000:]
                except subprocess.TimeoutExpired:
                    return
            known = self._planned()

    def run(self) -> None:
        """A driver from its start to its end."""
        with self.driver() as driver:
            assert driver.wait(PATIENCE_SECONDS) == 0, self.log()[-5000:]

    def log(self) -> str:
        return (self.root / "driver.log").read_text()

    def rows(self) -> list[Row]:
        """The rows of the table that are not deleted."""
        table = load_table(connect(), TABLE)
        rows = table.scan().to_arrow().sort_by(COLUMNS.names[0]).to_pylist()
        return [{name: row[name] for name in COLUMNS.names} for row in rows if not row.get(DELETED)]

    def _planned(self) -> int:
        offsets = self.checkpoint / "offsets"
        return sum(entry.name.isdecimal() for entry in offsets.iterdir()) if offsets.exists() else 0


def answer(bootstrap: str, order: str) -> list[Row]:
    """DuckDB's answer over the records of the topic: the rows that are left."""
    records = pa.Table.from_pylist(list(_consumed(bootstrap)), schema=_RECORDS)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("records", records)
        found: list[Row] = connection.sql(ANSWER.format(order=order)).to_arrow_table().cast(COLUMNS).to_pylist()
    return found


def _consumed(bootstrap: str) -> Iterator[Row]:
    own = {"bootstrap.servers": bootstrap, "group.id": "answer", "log_level": 0, "auto.offset.reset": "earliest"}
    consumer = Consumer({**own, "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    ended = 0
    while ended < PARTITIONS:
        record = consumer.poll(PATIENCE_SECONDS)
        assert record is not None, "the broker is silent"
        if record.error() is None:
            key, value = record.key(), record.value()
            assert key is not None
            yield {"key": key.decode(), "value": value and value.decode(), "offset": record.offset()}
        else:
            ended += 1
    consumer.close()
