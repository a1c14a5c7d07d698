"""Stands for a PostgreSQL table of orders, Debezium and Kafka: changes the orders, and writes down each change.

Each line of a file is a record of a Kafka topic with three partitions, and its value is an event as Debezium writes
it. A real project does not have this file.
"""

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

PARTITIONS = 3
REGIONS = ("africa", "americas", "asia", "europe", "oceania")
STATES = ("placed", "paid", "packed", "sent")
CHANNELS = ("web", "shop", "phone")
MANY_POINTS = 2**31
"""More than an INT holds."""
TOPIC = "shop.public.orders"
Row = dict[str, Any]


@dataclass(slots=True)
class Database:
    """The orders, and the records of their changes.

    Attributes:
        orders: The rows by key.
        records: The records since the last `publish`.
        has_channel: True after `add_column`.
    """

    chance: random.Random
    orders: dict[int, Row] = field(default_factory=dict)
    records: list[Row] = field(default_factory=list)
    has_channel: bool = False
    _last_id: int = 0
    _lsn: int = 0
    _offsets: list[int] = field(default_factory=lambda: [0] * PARTITIONS)

    def load(self, orders: int) -> None:
        """The initial load: Debezium reads the rows that are there (`r`)."""
        for _ in range(orders):
            self._insert("r")

    def work(self, times: int) -> None:
        """Customers and staff change orders: new ones, progress, moves to another region, deletes, new numbers."""
        progress = [self._progress] * 3
        changes = (self._insert, *progress, self._move, self._delete, self._renumber)
        for _ in range(times):
            self.chance.choice(changes)()

    def add_column(self) -> None:
        """``ALTER TABLE orders ADD COLUMN channel text``: events say nothing of it until a row changes."""
        self.has_channel = True
        self.orders = {key: row | {"channel": None} for key, row in self.orders.items()}

    def widen(self) -> None:
        """``ALTER TABLE orders ALTER COLUMN points TYPE bigint``, and the first number that needs it."""
        row = self._any_order()
        self._put("u", row, row | {"points": MANY_POINTS, "updated_at": self._now()})

    def send_badly(self) -> None:
        """A converter that somebody has set wrongly: the event has a decimal comma, the database does not."""
        row = self._any_order()
        self._put("u", row, row | {"state": STATES[-1], "updated_at": self._now()})
        event = json.loads(self.records[-1]["value"])
        event["after"]["amount"] = event["after"]["amount"].replace(".", ",")
        self.records[-1]["value"] = json.dumps(event)

    def publish(self, file: Path) -> None:
        """Write the records since the last time into a file, which appears whole."""
        staged = file.with_name(f".{file.name}")  # Spark ignores it until it has its name
        staged.write_text("".join(f"{json.dumps(record)}\n" for record in self.records))
        staged.rename(file)
        self.records.clear()

    def _insert(self, operation: str = "c") -> None:
        self._last_id += 1
        cents = self.chance.randrange(100, 100_000)
        row = {
            "order_id": self._last_id,
            "region": self.chance.choice(REGIONS),
            "state": STATES[0],
            "points": cents // 100,
        }
        row |= {"amount": str(Decimal(cents).scaleb(-2)), "updated_at": self._now()}
        self._put(operation, None, row | ({"channel": self.chance.choice(CHANNELS)} if self.has_channel else {}))

    def _progress(self) -> None:
        row = self._any_order()
        state = STATES[min(STATES.index(row["state"]) + 1, len(STATES) - 1)]
        self._put("u", row, row | {"state": state, "updated_at": self._now()})

    def _move(self) -> None:
        """The table in the lake is partitioned by region: the row leaves its partition."""
        row = self._any_order()
        self._put("u", row, row | {"region": self.chance.choice(REGIONS), "updated_at": self._now()})

    def _delete(self) -> None:
        row = self._any_order()
        del self.orders[row["order_id"]]
        self._send(row["order_id"], self._event("d", row, None))
        self._send(row["order_id"], None)  # a tombstone, for Kafka's own compaction

    def _renumber(self) -> None:
        """Another primary key: Debezium sends a delete, a tombstone, and an insert."""
        row = self._any_order()
        self._last_id += 1
        del self.orders[row["order_id"]]
        self._send(row["order_id"], self._event("d", row, None))
        self._send(row["order_id"], None)
        self._put("c", None, row | {"order_id": self._last_id, "updated_at": self._now()})

    def _put(self, operation: str, before: Row | None, after: Row) -> None:
        self.orders[after["order_id"]] = after
        self._send(after["order_id"], self._event(operation, before, after))

    def _event(self, operation: str, before: Row | None, after: Row | None) -> Row:
        self._lsn += 1
        source = {"connector": "postgresql", "schema": "public", "table": "orders", "lsn": self._lsn}
        return {"before": before, "after": after, "source": source, "op": operation}

    def _send(self, key: int, event: Row | None) -> None:
        """Kafka's partition follows from the key: all changes of an order stay in their order."""
        partition = key % PARTITIONS
        record = {
            "key": json.dumps({"order_id": key}),
            "value": None if event is None else json.dumps(event),
            "topic": TOPIC,
            "partition": partition,
            "offset": self._offsets[partition],
        }
        self._offsets[partition] += 1
        self.records.append(record)

    def _any_order(self) -> Row:
        return self.orders[self.chance.choice(list(self.orders))]

    def _now(self) -> str:
        """PostgreSQL's ``timestamptz``, as Debezium writes it."""
        return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._lsn)).isoformat().replace("+00:00", "Z")
