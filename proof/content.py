"""What the rows of a source are: rows as they are, documents, changes of rows by key, and some that do not fit."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Any

import pyarrow as pa

from lakesink.rows.changed_rows import DELETE_MARK
from lakesink_protocol.row_changes import Mode, Operation
from proof.changes import Changing, RowChange
from proof.oracle import Key

COLUMNS = ("partition", "offset")
ROWS = pa.schema([(name, pa.int64()) for name in COLUMNS])
DOCUMENTS = pa.schema([("value", pa.string())])
"""Every row tells its source partition and its offset."""
ID, SEQUENCE, ZONE = "id", "seq", "zone"
"""Columns of changes: the key, what orders the changes of a key, and what the table is partitioned by."""
CHANGES = pa.schema([*ROWS, *((name, pa.int64()) for name in (ID, SEQUENCE, ZONE))])
MARKED = CHANGES.append(pa.field(DELETE_MARK, pa.bool_()))
RECORDS = pa.schema([("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
"""Documents with changes, as Kafka has them."""
SIZE = "size"
"""A column of INT in tables of documents."""
NEW_COLUMNS = ("a", "b")
"""Columns that drivers and documents bring, and that others add and drop, where the schema changes."""
NEW_KEY, LARGE = 0.25, 0.15
"""How often a document has each new key, and a number that is too large for `SIZE`."""
LARGE_SIZE = 2**40
UNFIT = "none"
"""In the place of a size: such a document cannot be written."""
CHANGELOG = "demo.log"
REST = "rest"
"""The column that keeps what others do not hold, where the query has one."""
_FAULTS: tuple[Mapping[str, Any], ...] = ({SIZE: UNFIT}, {SIZE: -1}, {SEQUENCE: None})
"""What is wrong with a change that is put aside: it is malformed, meets no expectation, or has no sequence."""
_REASONS = ("VALUE_MALFORMED", "EXPECTATION_UNMET", "SEQUENCE_NULL")
_OPERATIONS = {Operation.UPSERT: "c", Operation.SNAPSHOT: "r", Operation.DELETE: "d"}


@dataclass(frozen=True, slots=True)
class Content:
    """The rows of a source, and what the query does with them.

    Attributes:
        aside_every: Of so many rows one cannot be written and is put aside; 0 if the query puts none aside.
        follows: `schema_evolution` of a query that decodes documents; empty for rows without.
        salt: Which documents have new keys.
        changing: How the rows are changes; None if they are only appended.
        logs: True if a changelog gets the changes.
        on_absent: What a replay of dead letters does with rows of keys that the table lacks.
        rescues: True if `REST` keeps what no column holds.
    """

    aside_every: int = 0
    follows: str = ""
    salt: int = 0
    changing: Changing | None = None
    logs: bool = field(default=False, repr=False)  # draws begin with the text of a scenario
    on_absent: str = field(default="fail", repr=False)
    rescues: bool = field(default=False, repr=False)

    @property
    def has_features(self) -> bool:
        """True for documents with changes: the table may follow them, and some may be put aside."""
        return self.changing is not None and bool(self.aside_every or self.follows or self.rescues)

    def is_unfit(self, key: Key) -> bool:
        """True for a row that cannot be written."""
        return self.aside_every > 0 and sum(key) % self.aside_every == 0

    def document(self, key: Key) -> Mapping[str, Any]:
        """The document of a row; the same whenever it is asked for."""
        found = _document(self.salt, self.follows == "widen", key)
        return {**found, SIZE: UNFIT} if self.is_unfit(key) else found

    @property
    def options(self) -> dict[str, Any]:
        """Of the query."""
        found: dict[str, Any] = {"on_malformed": "quarantine", "max_dead_letter_ratio": 1.0} if self.aside_every else {}
        found |= {"schema_evolution": self.follows} if self.follows else {}
        if self.has_features:
            assert self.changing is not None
            found |= _options_of(self.changing) | {"decode": "debezium-json" if self._are_events else "json"}
            found |= {"expect": {"sized": (f"{SIZE} >= 0", "quarantine")}} if self.aside_every else {}
            found |= {"changelog_table": CHANGELOG} if self.logs else {}
            found |= {"rescue_column": REST} if self.rescues else {}
            found.pop("apply_as_deletes", None)
        elif self.changing is not None:
            found |= _options_of(self.changing)
        elif self.follows:
            found |= {"decode": "json"}
        return found

    @property
    def of_replays(self) -> dict[str, Any]:
        """Options of replays of its dead letters."""
        assert self.changing is not None
        return _options_of(self.changing) | {"on_absent": self.on_absent}

    @property
    def table(self) -> pa.Schema:
        """Of the table before anybody changes it."""
        if self.changing is not None:
            return CHANGES
        return pa.schema([*ROWS, (SIZE, pa.int32())]) if self.follows else ROWS

    @property
    def schema(self) -> pa.Schema:
        """Of the query's rows, without the mark of deletes."""
        if self.has_features:
            return RECORDS
        if self.changing is not None:
            return CHANGES
        return DOCUMENTS if self.follows else ROWS

    def batch(self, keys: list[Key]) -> pa.RecordBatch:
        """Rows as they arrive."""
        if self.has_features:
            records = [dict(zip(RECORDS.names, (self._change(key), "t", *key), strict=True)) for key in keys]
            return pa.RecordBatch.from_pylist(records, RECORDS)
        if self.changing is not None:
            schema = MARKED if self.changing.mode is Mode.CHANGES else CHANGES
            return pa.RecordBatch.from_pylist([_arriving(self.changing, key) for key in keys], schema=schema)
        if self.follows:
            return pa.record_batch([pa.array(map(self._text, keys), pa.string())], schema=DOCUMENTS)
        return pa.record_batch([pa.array([key[at] for key in keys], pa.int64()) for at in range(2)], schema=ROWS)

    def keys(self, batch: pa.RecordBatch) -> list[Key]:
        """The inverse of `batch`."""
        if self.follows:
            found = map(json.loads, batch.column(0).to_pylist())
            return [(document["partition"], document["offset"]) for document in found]
        return list(zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True))

    def changes_of(self, rows: Iterable[Key]) -> list[RowChange]:
        """The changes of rows that are not put aside."""
        assert self.changing is not None
        aside = self.is_unfit if self.has_features else lambda _: False
        return [change for row in rows if not aside(row) for change in self.changing.of(row)]

    def row(self, change: RowChange) -> dict[str, Any]:
        """The whole row of a change. One that is deleted has no new column."""
        brings = (self.follows or self.rescues) and change.operation is not Operation.DELETE
        more = _document(self.salt, self._has_large, change.row) if brings else {SIZE: 1}
        return {**more, **_columns_of(change)}

    def landed(self, change: RowChange) -> dict[str, Any]:
        """The whole row of a change in the table: of a repaired letter, without new columns."""
        return {SIZE: 1, **_columns_of(change)} if self.is_unfit(change.row) else self.row(change)

    def logged(self, change: RowChange, sink: str, batch: int) -> dict[str, Any]:
        """The row of a change in the changelog."""
        partition, offset = change.row
        return {
            **self.row(change),
            "_operation": change.operation.name.lower(),
            "_sink": sink,
            "_batch_id": batch,
            "_source_partition": partition,
            "_source_offset": offset,
        }

    def letter(self, key: Key) -> tuple[str, str, str | None, str | None]:
        """Of the dead letter of a change: the reason, the operation, the key of the row, and its sequence."""
        assert self.changing is not None
        change, at = self.changing.of(key)[-1], self._fault(key)
        operation = change.operation.name.lower()
        texts = [f'{{"{name}":{value}}}' for name, value in ((ID, change.key), (SEQUENCE, change.sequence))]
        if at == 0 and self._are_events:
            return _REASONS[at], "unknown", None, None
        return _REASONS[at], operation, texts[0], None if SEQUENCE in _FAULTS[at] else texts[1]

    def replayed(self, key: Key) -> RowChange:
        """The change that a repaired letter is."""
        assert self.changing is not None
        change = self.changing.of(key)[-1]
        deletes = change.operation is Operation.DELETE
        return change if deletes else replace(change, operation=Operation.UPSERT)

    def repaired(self, keys: list[Key]) -> pa.Table:
        """The rows of dead letters as they should have come, without new columns."""
        assert self.changing is not None
        found = [{**_arriving(self.changing, key), SIZE: 1} for key in keys]
        schema = MARKED if self._are_events else CHANGES
        return pa.Table.from_pylist(found, schema.append(pa.field(SIZE, pa.int32())))

    @property
    def _has_large(self) -> bool:
        """Some sizes are too large for their column. One that is rescued is NULL there, and meets no expectation."""
        return self.follows == "widen" or (self.rescues and not self.aside_every)

    @property
    def _are_events(self) -> bool:
        return self.changing is not None and self.changing.mode is Mode.CHANGES

    def _fault(self, key: Key) -> int:
        """Which one an unfit change has. A delete is never judged and has no size; what is no number is rescued."""
        assert self.changing is not None
        deletes = self.changing.of(key)[-1].operation is Operation.DELETE
        faults = range(len(_FAULTS))[self.rescues :]
        return faults[-1] if deletes else faults[sum(key) // self.aside_every % len(faults)]

    def _change(self, key: Key) -> bytes:
        """The document of a change: its row, or an event of Debezium."""
        assert self.changing is not None
        changes = self.changing.of(key)
        rows = [self.row(change) for change in changes]
        rows[-1] |= _FAULTS[self._fault(key)] if self.is_unfit(key) else {}
        if not self._are_events:
            return json.dumps(rows[-1]).encode()
        sides = rows if len(rows) > 1 else [None, *rows]
        operation = "u" if len(rows) > 1 else _OPERATIONS[changes[-1].operation]
        before, after = reversed(sides) if operation == "d" else sides
        return json.dumps({"before": before, "after": after, "op": operation}).encode()

    def _text(self, key: Key) -> str:
        return json.dumps(self.document(key))


def _options_of(changing: Changing) -> dict[str, Any]:
    found: dict[str, Any] = {"mode": changing.mode.value, "keys": [ID]}
    if changing.has_sequence:
        found["sequence_by"] = SEQUENCE
    return found | ({"apply_as_deletes": "op = 'd'"} if changing.mode is Mode.CHANGES else {})


def _arriving(changing: Changing, key: Key) -> dict[str, Any]:
    """A row of the query; of a row whose key changes it has the new key."""
    change = changing.of(key)[-1]
    found = _columns_of(change)
    return {**found, DELETE_MARK: change.operation is Operation.DELETE} if changing.mode is Mode.CHANGES else found


def _columns_of(change: RowChange) -> dict[str, Any]:
    values = (*change.row, change.key, change.sequence, change.zone)
    return dict(zip(CHANGES.names, values, strict=True))


@lru_cache(maxsize=4096)
def _document(salt: int, has_large: bool, key: Key) -> Mapping[str, int]:  # noqa: FBT001 # a part of the key
    random = Random(f"{salt} {key}")
    large = random.random() < LARGE and has_large
    new = [name for name in NEW_COLUMNS if random.random() < NEW_KEY]
    return {**dict(zip(COLUMNS, key, strict=True)), SIZE: LARGE_SIZE if large else 1, **dict.fromkeys(new, 1)}


PLAIN = Content()
"""Rows as they are, all of which fit."""
EVERYTHING = Content(aside_every=3, follows="widen", salt=2341)
"""Documents of which some are put aside. In batches of `ROWS_OF_EVERYTHING` rows a partition, the second one brings the
first new column, and the third one another and a number that is too large."""
UPSERTED = Content(changing=Changing(Mode.CHANGES, keys=8, salt=35, has_places=False))
"""Changes by key: upserts, deletes, late ones, and rows that go to another partition."""
KEYED_DOCUMENTS = Content(
    aside_every=3,
    follows="add",
    salt=4371,
    changing=Changing(Mode.UPSERT, keys=8, salt=4371, has_ties=False),
    logs=True,
)
"""Documents that replace rows by key. In batches of `ROWS_OF_UPSERTED` rows a partition, the second one and the third
bring a column each. Of the dead letters, some are late when they are replayed, and the keys of some are not there."""
EVENTS = Content(
    aside_every=3,
    follows="widen",
    salt=1773,
    changing=Changing(Mode.CHANGES, keys=5, salt=1773, has_ties=False),
    logs=True,
)
"""Events of Debezium, of which the same is true. The second batch widens a column, and some letters are deletes."""
ROWS_OF_UPSERTED = 6
ROWS_OF_EVERYTHING = 4
