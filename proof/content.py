"""What the rows of a source are: rows as they are, documents, changes of rows by key, and some that do not fit."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

import pyarrow as pa

from lakesink.rows.changed_rows import DELETE_MARK
from lakesink_protocol.row_changes import Mode, Operation
from proof.changes import Changing
from proof.oracle import Key

COLUMNS = ("partition", "offset")
ROWS = pa.schema([(name, pa.int64()) for name in COLUMNS])
DOCUMENTS = pa.schema([("value", pa.string())])
"""Every row tells its source partition and its offset."""
ID, SEQUENCE, ZONE = "id", "seq", "zone"
"""Columns of changes: the key, what orders the changes of a key, and what the table is partitioned by."""
CHANGES = pa.schema([*ROWS, *((name, pa.int64()) for name in (ID, SEQUENCE, ZONE))])
MARKED = CHANGES.append(pa.field(DELETE_MARK, pa.bool_()))
SIZE = "size"
"""A column of INT in tables of documents."""
NEW_COLUMNS = ("a", "b")
"""Columns that drivers and documents bring, and that others add and drop, where the schema changes."""
NEW_KEY, LARGE = 0.25, 0.15
"""How often a document has each new key, and a number that is too large for `SIZE`."""
LARGE_SIZE = 2**40
UNFIT = "none"
"""In the place of a size: such a document cannot be written."""


@dataclass(frozen=True, slots=True)
class Content:
    """The rows of a source, and what the query does with them.

    Attributes:
        aside_every: Of so many rows one cannot be written and is put aside; 0 if the query puts none aside.
        follows: `schema_evolution` of a query that decodes documents; empty for rows without.
        salt: Which documents have new keys.
        changing: How the rows are changes; None if they are only appended.
    """

    aside_every: int = 0
    follows: str = ""
    salt: int = 0
    changing: Changing | None = None

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
        if self.changing is not None:
            return _options_of(self.changing)
        aside = {"on_malformed": "quarantine", "max_dead_letter_ratio": 1.0} if self.aside_every else {}
        return aside | ({"decode": "json", "schema_evolution": self.follows} if self.follows else {})

    @property
    def table(self) -> pa.Schema:
        """Of the table before anybody changes it."""
        if self.changing is not None:
            return CHANGES
        return pa.schema([*ROWS, (SIZE, pa.int32())]) if self.follows else ROWS

    @property
    def schema(self) -> pa.Schema:
        """Of the query's rows, without the mark of deletes."""
        if self.changing is not None:
            return CHANGES
        return DOCUMENTS if self.follows else ROWS

    def batch(self, keys: list[Key]) -> pa.RecordBatch:
        """Rows as they arrive."""
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
    values = (*key, change.key, change.sequence, change.zone)
    found = dict(zip(CHANGES.names, values, strict=True))
    return {**found, DELETE_MARK: change.operation is Operation.DELETE} if changing.mode is Mode.CHANGES else found


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
ROWS_OF_UPSERTED = 6
ROWS_OF_EVERYTHING = 4
