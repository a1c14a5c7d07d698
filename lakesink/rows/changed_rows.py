"""Changes of rows on their way to a task's files: rows with an operation and a place in the source. PyArrow only.

A *mark* is a BOOLEAN column that Spark adds to rows with the table's columns: true if the row is a delete. Documents
need none, because a decoder knows the operation of each.
"""

import hashlib
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.rows.scalars import int64
from lakesink.rows.texts import is_valid
from lakesink_protocol.redact import redact

DELETE_MARK = "_lakesink_delete"
"""Name of the mark: true deletes, false upserts, NULL refuses the batch."""
TOPIC, PARTITION, OFFSET = "topic", "partition", "offset"
"""Columns of Kafka's source."""
FILE = "file_path"
"""The column for a row's file in Spark's ``_metadata``."""
POSITIONS = ("_kafka_partition", "_kafka_offset")
"""Columns of a table with positions in Kafka: they order the records of one partition only."""
_PARTITION_BITS = 32
_TOPIC_BYTES = 4
_DIGITS = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Changes, one for each row.

    Attributes:
        rows: Columns with the names of the table's. A delete needs values only in the columns of key and sequence.
        operations: `Operation` as int8, without NULLs.
        places: int64: where the row comes from, see `positions_in`; NULL if that is unknown.
        offsets: int64: the position within that place; NULL if the place is.
    """

    rows: pa.RecordBatch
    operations: pa.Array
    places: pa.Array
    offsets: pa.Array

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(int(part.nbytes) for part in self._parts)

    def filter(self, kept: pa.BooleanArray) -> "ChangedRows":
        """A copy of the changes for which this is true."""
        return ChangedRows(*(part.filter(kept) for part in self._parts))

    def source_of(self, at: int) -> str:
        """Where one of the changes comes from, in words, by its place or columns of it; empty if that is unknown."""
        row = self.rows.slice(at, 1)
        found = (self.places[at], self.offsets[at]), tuple(values[0] for values in positions_in(row))
        known = next(filter(None, (place_in_words(place.as_py(), offset.as_py()) for place, offset in found)), "")
        path = exact_values(row.column(FILE), pa.string())[0].as_py() if FILE in row.schema.names else None
        return known or (f"of {redact(path)}" if path else "")

    @property
    def _parts(self) -> tuple[pa.RecordBatch, pa.Array, pa.Array, pa.Array]:
        return self.rows, self.operations, self.places, self.offsets


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows whose columns have the names of the table's. The last three attributes are None if the rows are appended.

    Attributes:
        came: The rows as they came to the task, of which these were made: a dead letter has one of them.
        at: For each row, its position in `came`; None if it is the same for both.
        operations: `Operation` of each row as int8; NULL until it is known.
        places: int64: where the row comes from, and `offsets` the position there, see `ChangedRows`.
    """

    rows: pa.RecordBatch
    came: pa.RecordBatch
    at: pa.Array | None = None
    operations: pa.Array | None = None
    places: pa.Array | None = None
    offsets: pa.Array | None = None

    @property
    def changed(self) -> ChangedRows:
        """The rows as changes."""
        return ChangedRows(self.rows, self.operations, self.places, self.offsets)

    def positions(self, rows: Iterable[int]) -> list[int]:
        """The positions in `came` of these rows."""
        return [row if self.at is None else self.at[row].as_py() for row in rows]

    def made_with(self, rows: Collection[int]) -> Collection[int]:
        """All rows that were made of the same ones as these: an event that changes a key is two changes."""
        if self.at is None or not rows:
            return rows
        made: list[int] = pc.indices_nonzero(pc.is_in(self.at, self.at.take(pa.array(rows)))).to_pylist()
        return made

    def slice(self, start: int, length: int) -> "RowBatch":
        """Some of the rows, without a copy."""
        came = self.came.slice(start, length) if self.at is None else self.came
        return self._each(lambda part: part.slice(start, length), came, self.at)

    def filter(self, kept: pa.BooleanArray) -> "RowBatch":
        """A copy of the rows for which this is true."""
        at = pa.arange(0, self.rows.num_rows) if self.at is None else self.at
        return self._each(lambda part: part.filter(kept), self.came, at)

    def _each(self, some: Callable[[Any], Any], came: pa.RecordBatch, at: pa.Array | None) -> "RowBatch":
        parts = (at, self.operations, self.places, self.offsets)
        return RowBatch(some(self.rows), came, *(None if part is None else some(part) for part in parts))


def joined(parts: Sequence[ChangedRows]) -> ChangedRows:
    """The changes of all parts, of which there is at least one."""
    if len(parts) == 1:
        return parts[0]
    arrays = ([part.operations for part in parts], [part.places for part in parts], [part.offsets for part in parts])
    return ChangedRows(pa.concat_batches([part.rows for part in parts]), *map(pa.concat_arrays, arrays))


def positions_in(batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """Places and offsets of rows from Kafka; NULLs for rows of another source.

    A place is a partition of a topic, as one number: offsets are comparable within a place only.
    """
    names = batch.schema.names
    if PARTITION not in names or OFFSET not in names:
        unknown = pa.nulls(batch.num_rows, pa.int64())
        return unknown, unknown
    partitions = exact_values(batch.column(PARTITION), pa.int32()).cast(pa.int64())
    offsets = exact_values(batch.column(OFFSET), pa.int64())
    topics = exact_values(batch.column(TOPIC), pa.string()) if TOPIC in names else None
    places = partitions if topics is None else pc.add(partitions, _topics(topics))
    known = pc.and_(places.is_valid(), offsets.is_valid())
    nothing = pa.nulls(1, pa.int64())[0]
    return pc.if_else(known, places, nothing), pc.if_else(known, offsets, nothing)


def partitions_of(places: pa.Array) -> pa.Array:
    """The partitions of these places; NULL for unknown ones."""
    return pc.bit_wise_and(places, int64((1 << _PARTITION_BITS) - 1)).cast(pa.int32())


def place_in_words(place: int | None, offset: int | None) -> str:
    """A position for messages; empty if it is unknown."""
    return "" if place is None else f"partition {place % (1 << _PARTITION_BITS)}, offset {offset}"


def _topics(names: pa.Array) -> pa.Array:
    """A number for each topic, above those of partitions."""
    encoded = names.dictionary_encode()
    digests = (hashlib.sha256(name.encode()).digest() for name in encoded.dictionary.to_pylist())
    numbers = array("q", [int.from_bytes(digest[:_TOPIC_BYTES]) >> 1 << _PARTITION_BITS for digest in digests])
    values = [None, pa.py_buffer(numbers)]
    return pa.Array.from_buffers(pa.int64(), len(numbers), values).take(encoded.indices)  # pa.array would import pandas


def exact_values(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Each value as a whole number, text or bytes, if that is exact; NULL for every other value. It never fails."""
    held, types = column.type, pa.types
    if held == kind and not types.is_string(kind):
        return column
    is_number = types.is_integer(held) or types.is_floating(held) or types.is_decimal(held)
    is_text = types.is_string(held) or types.is_large_string(held)
    is_bytes = is_text or types.is_binary(held) or types.is_large_binary(held) or types.is_fixed_size_binary(held)
    if types.is_integer(kind) and (is_number or is_text):
        values = column if is_number else _texts(column)
        return pa.array([_whole(value, kind.bit_width) for value in values.to_pylist()], kind)
    if types.is_string(kind) and (is_number or is_bytes):
        return column.cast(kind) if is_number else _texts(column)
    return column.cast(kind) if types.is_binary(kind) and is_bytes else pa.nulls(len(column), kind)


def _whole(value: Any, bits: int) -> int | None:
    if isinstance(value, str):
        value = int(value) if _DIGITS.fullmatch(value) else None
    limit = 1 << bits - 1
    return int(value) if value is not None and -limit <= value < limit and int(value) == value else None


def _texts(column: pa.Array) -> pa.Array:
    """Those that are UTF-8: Spark accepts any bytes as a text."""
    values = column.cast(pa.binary())
    texts = values.cast(pa.string(), safe=False)
    return texts if is_valid(texts) else pa.array(map(_text, values.to_pylist()), pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
