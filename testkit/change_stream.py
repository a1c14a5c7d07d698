"""A change stream as Debezium writes it for a PostgreSQL table of orders, and the table that it must become.

The stream begins with the rows of an initial load. Inserts, updates, moves to another region, deletes with tombstones,
and changes of keys follow, in both forms that Debezium has for them. The changes of one key are in one partition, in
their order: whatever order the partitions are read in, the table is the same.
"""

import base64
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

Row = dict[str, Any]
COLUMNS = pa.schema(
    [
        pa.field("order_id", pa.int64(), nullable=False),
        pa.field("region", pa.string()),
        pa.field("customer", pa.string()),
        pa.field("amount", pa.decimal128(38, 2)),
        pa.field("placed_on", pa.date32()),
        pa.field("placed_at", pa.timestamp("us", "UTC")),
        pa.field("updated_at", pa.timestamp("us")),
        pa.field("paid", pa.bool_()),
        pa.field("note", pa.string()),
    ]
)
KEY = "order_id"
REGIONS = ("africa", "americas", "asia", "europe", "oceania")
_NOTES = (None, "", "x" * 300, 'a "quoted" note', "back\\slash", "line\nbreak", "naïve 漢字 😀", '"op":"d"', "\x00")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CONNECT: dict[str, Row] = {
    "order_id": {"type": "int64"},
    "amount": {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "38"},
    },
    "placed_on": {"type": "int32", "name": "io.debezium.time.Date", "version": 1},
    "placed_at": {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1},
    "updated_at": {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1},
    "paid": {"type": "boolean"},
}
"""Kafka Connect's types of the columns that are not plain texts."""


@dataclass(frozen=True, slots=True)
class Message:
    """One record of a Kafka topic."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None


@dataclass(slots=True)
class Orders:
    """A source table whose changes are written down.

    Attributes:
        wrapped: True for documents with a schema (``schemas.enable``) and Debezium's default types; False for bare
            documents, with decimals and times as texts.
        full: True if rows before a change are whole (``REPLICA IDENTITY FULL``); else they have the key only.
        messages: The stream so far.
        table: The rows by key, as they are after it.
    """

    seed: int
    partitions: int = 3
    wrapped: bool = False
    full: bool = False
    messages: list[Message] = field(default_factory=list)
    table: dict[int, Row] = field(default_factory=dict)
    _random: random.Random = field(init=False)
    _offsets: list[int] = field(init=False)
    _last_key: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._offsets = [0] * self.partitions

    def load(self, rows: int) -> None:
        """Write the rows of an initial load."""
        for _ in range(rows):
            self._put("r", self._new_row(self._next_key()))

    def change(self, times: int) -> None:
        """Change the table so often, at random."""
        changes = (self._insert, self._update, self._update, self._move, self._delete, self._rename, self._renumber)
        for _ in range(times):
            change = self._random.choice(changes) if self.table else self._insert
            change()

    def _insert(self) -> None:
        self._put("c", self._new_row(self._next_key()))

    def _update(self) -> None:
        row = self._any_row()
        changed = row | {"amount": self._amount(), "note": self._note(), "paid": True, "updated_at": self._moment(None)}
        self._put("u", changed, row if self.full else None)

    def _move(self) -> None:
        """Give a row another value of the column that tables of orders are partitioned by."""
        row = self._any_row()
        self._put("u", row | {"region": self._random.choice(REGIONS)}, row if self.full else None)

    def _delete(self) -> None:
        self._remove(self._any_row())

    def _rename(self) -> None:
        """Change a key as Debezium does: a delete, a tombstone, and a new row."""
        row = self._any_row()
        self._remove(row)
        self._put("c", row | {KEY: self._next_key()})

    def _renumber(self) -> None:
        """Change a key in one event, as with ``message.key.columns``; the new key is of the same partition."""
        row = self._any_row()
        key = self._next_key()
        while key % self.partitions != row[KEY] % self.partitions:
            key = self._next_key()
        del self.table[row[KEY]]
        self._put("u", row | {KEY: key}, row if self.full else self._key_alone(row))

    def _remove(self, row: Row) -> None:
        del self.table[row[KEY]]
        before = row if self.full else self._key_alone(row)
        self._write(row[KEY], self._envelope("d", before, None))
        self._write(row[KEY], None)

    def _put(self, operation: str, row: Row, before: Row | None = None) -> None:
        self.table[row[KEY]] = row
        self._write(row[KEY], self._envelope(operation, before, row))

    def _write(self, key: int, value: str | None) -> None:
        partition = key % self.partitions
        offset = self._offsets[partition]
        self._offsets[partition] += 1
        of_key = self._document({KEY: key}, {"type": "struct", "fields": [{"type": "int64", "field": KEY}]})
        self.messages.append(Message(partition, offset, of_key.encode(), None if value is None else value.encode()))

    def _envelope(self, operation: str, before: Row | None, after: Row | None) -> str:
        event = {
            "before": self._encoded(before),
            "after": self._encoded(after),
            "source": {"connector": "postgresql", "name": "shop", "op": "x", "lsn": len(self.messages), "xmin": None},
            "transaction": None,
            "op": operation,
            "ts_ms": 1_700_000_000_000 + len(self.messages),
        }
        return self._document(event, _ENVELOPE)

    def _document(self, payload: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
        document = {"schema": schema, "payload": payload} if self.wrapped else payload
        return json.dumps(document, separators=(",", ":"), ensure_ascii=self._random.random() < 0.5)

    def _encoded(self, row: Row | None) -> Row | None:
        if row is None:
            return None
        return {name: value if value is None else self._value(name, value) for name, value in row.items()}

    def _value(self, name: str, value: Any) -> Any:
        match value:
            case Decimal():
                return _digits(value) if self.wrapped else str(value)
            case datetime() if name == "updated_at" and self.wrapped:
                return (value.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
            case datetime():
                return value.replace(tzinfo=None).isoformat() + "Z"
            case date():
                return (value - _EPOCH.date()).days if self.wrapped else f"{value.isoformat()}Z"
        return value

    def _key_alone(self, row: Row) -> Row:
        """The row before a change as PostgreSQL logs it by default."""
        return dict.fromkeys(row) | {KEY: row[KEY]}

    def _any_row(self) -> Row:
        return self.table[self._random.choice(list(self.table))]

    def _next_key(self) -> int:
        self._last_key += self._random.choice((1, 1, 2, 2**40))
        return self._last_key

    def _new_row(self, key: int) -> Row:
        placed_at = self._moment(UTC)
        return {
            KEY: key,
            "region": self._random.choice(REGIONS),
            "customer": f"customer {self._random.randrange(1000)}",
            "amount": self._amount(),
            "placed_on": placed_at.date(),
            "placed_at": placed_at,
            "updated_at": self._moment(None),
            "paid": self._random.choice((None, False, True)),
            "note": self._note(),
        }

    def _amount(self) -> Decimal:
        digits = self._random.choice((1, 4, 9, 17, 37))
        return Decimal(f"{self._random.randrange(-(10**digits), 10**digits)}E-2")

    def _note(self) -> str | None:
        return self._random.choice(_NOTES)

    def _moment(self, zone: Any) -> datetime:
        return datetime(2020, 1, 1, tzinfo=zone) + timedelta(microseconds=self._random.randrange(10**14))


def batches_of(messages: list[Message], seed: int, topic: str = "shop.public.orders") -> Iterator[pa.RecordBatch]:
    """The messages as Spark's Kafka source gives them, in batches of random sizes; partitions in any order."""
    chance = random.Random(seed)
    waiting: dict[int, list[Message]] = {}
    for message in messages:
        waiting.setdefault(message.partition, []).append(message)
    while waiting:
        partition = chance.choice(sorted(waiting))
        size = chance.randrange(1, 200)
        taken, waiting[partition] = waiting[partition][:size], waiting[partition][size:]
        if not waiting[partition]:
            del waiting[partition]
        yield batch_of(taken, topic)


def batch_of(messages: list[Message], topic: str = "shop.public.orders") -> pa.RecordBatch:
    """Messages with the columns of Spark's Kafka source."""
    columns = {
        "key": pa.array([one.key for one in messages], pa.binary()),
        "value": pa.array([one.value for one in messages], pa.binary()),
        "topic": pa.array([topic] * len(messages), pa.string()),
        "partition": pa.array([one.partition for one in messages], pa.int32()),
        "offset": pa.array([one.offset for one in messages], pa.int64()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _digits(value: Decimal) -> str:
    """A decimal with two places as Kafka Connect writes it in JSON."""
    unscaled = int(value.scaleb(2, Context(prec=40)))
    return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()


def _row_schema(side: str) -> Row:
    fields = [
        _CONNECT.get(one.name, {"type": "string"}) | {"field": one.name, "optional": one.nullable} for one in COLUMNS
    ]
    return {"type": "struct", "fields": fields, "optional": True, "name": "shop.public.orders.Value", "field": side}


_ENVELOPE: Row = {
    "type": "struct",
    "fields": [
        _row_schema("before"),
        _row_schema("after"),
        {"type": "struct", "fields": [], "optional": False, "field": "source"},
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ],
    "optional": False,
    "name": "shop.public.orders.Envelope",
    "version": 2,
}
