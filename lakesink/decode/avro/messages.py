"""Reads Confluent's wire format: a zero byte, the number of the writer's schema in four bytes, and the Avro value."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lakesink.decode.avro.cursor import ZEROS, Bytes, Cursor, Mask, Whole
from lakesink.decode.avro.kinds import unknown_fields
from lakesink.decode.avro.nested import ValueReader
from lakesink.decode.avro.news import AvroNews
from lakesink.decode.avro.rest import json_of
from lakesink.decode.avro.schema import WriterSchema, kind_at
from lakesink.decode.json_scalars import Parsed
from lakesink.decode.misfits import Column, Found, Path, UnknownKeys, misfitting, with_option
from lakesink.decode.news_rows import Find
from lakesink.rows.nested import all_null
from lakesink.rows.plan import BinaryEncoding, NewsPlan
from lakesink.rows.schema import Struct, arrow_type

MAGIC = 0
HEADER_BYTES = 5
MESSAGE = "an Avro record"
REST_NOT_KEPT = Found(
    "more than 1 MiB, or text that is not UTF-8, that no column holds", expected="a message with a smaller rest"
)

Schemas = Callable[[int], WriterSchema | None]
"""The schema of a number; None if it does not exist."""


@dataclass(slots=True)
class MessageReader:
    """Reads messages for one task.

    Attributes:
        unknown: Counts the fields without a column, by their schemas: with all their values, also null.
        forgives: True to read a misfit in an optional field as NULL, and to find all messages of which the columns
            hold only a part.
        encoding: How texts spell the bytes of BINARY columns; None if no text is taken for bytes.
    """

    schemas: Schemas
    unknown: UnknownKeys | None = None
    forgives: bool = False
    encoding: BinaryEncoding | None = None
    _unknown: dict[int, list[Path]] = field(default_factory=dict)

    def documents(self, values: pa.Array, kind: Struct) -> Parsed:
        """A table's columns from binary messages; NULL and every other value that is not a message is malformed."""
        cursor, numbers = _bodies(values)
        parts = [
            (rows, self._written_with(int(number), kind, cursor, rows))
            for number in np.unique(numbers[cursor.active])
            for rows in [np.flatnonzero(cursor.active & (numbers == number))]
        ]
        misfits = pa.array(~cursor.active) if not cursor.active.all() else None
        rest = pa.array(cursor.marked) if cursor.marked.any() else None
        return Parsed(_in_place(parts, kind, cursor), misfits, rest)

    def texts(self, values: pa.Array, without: Collection[str] = ()) -> Iterator[str]:
        """Messages as JSON, without the fields of some names; `documents` has accepted them."""
        for value in values.to_pylist():
            schema = self.schemas(_schema_id(value))
            assert schema is not None
            yield json_of(value[HEADER_BYTES:], schema, without)

    def news(self, plan: NewsPlan, struct: Struct) -> Find:
        """See `lakesink.decode.documents.DocumentReader`."""
        return AvroNews(plan, struct, self).found

    def explain(self, values: pa.Array, kind: Struct) -> list[list[Found]]:
        """For each of a few malformed messages, the values that do not fit."""
        alone = replace(self, unknown=None)  # a second reading must not count again
        columns = misfitting(values, kind, alone.documents)
        return [self._explained(value, found) for value, found in zip(values.to_pylist(), columns, strict=True)]

    def _explained(self, value: bytes | None, columns: list[Column]) -> list[Found]:
        if value is None:
            return [Found("no value (NULL)", expected=MESSAGE)]
        if len(value) < HEADER_BYTES or value[0] != MAGIC:
            return [Found(f"{len(value):,} bytes that are not in Confluent's wire format", expected=MESSAGE)]
        number = _schema_id(value)
        schema = self.schemas(number)
        if schema is None:
            return [Found(f"schema {number}, which the registry does not have", expected=MESSAGE)]
        cursor, _ = _bodies(pa.array([value]))
        ValueReader(schema).read(schema.root, None, cursor)
        if not (cursor.active.all() and (cursor.at == cursor.end).all()):
            return [Found(f"bytes that end too early or too late for schema {number}", expected=MESSAGE)]
        misfits = dict.fromkeys(
            with_option(one.found(f"{kind_at(schema, one.path)} of schema {number}"), one.type, self.encoding)
            for one in columns
        )
        if not misfits and self.forgives:
            return [REST_NOT_KEPT]
        return list(misfits) or [Found(f"a value of schema {number} that is not read", expected=MESSAGE)]

    def _written_with(self, number: int, kind: Struct, cursor: Cursor, rows: Whole) -> pa.Array:
        part = cursor.pick(rows)
        schema = self.schemas(number)
        if schema is None:
            values, complete = all_null(len(rows), arrow_type(kind)), np.zeros(len(rows), np.bool_)
        else:
            values = ValueReader(schema, self.forgives, self.encoding).read(schema.root, kind, part)
            assert values is not None
            if self.unknown is not None:
                if number not in self._unknown:
                    self._unknown[number] = unknown_fields(schema, kind)
                for path in self._unknown[number]:
                    self.unknown.add(path[:-1], [(path[-1], len(rows))])
            complete = (part.at == part.end) & ~values.is_null().to_numpy(zero_copy_only=False)
        part.fail(~complete)
        cursor.put(rows, part)
        return values

    def by_schema(self, values: pa.Array) -> Iterator[tuple[int, WriterSchema, pa.BooleanArray]]:
        """The schemas of the messages, each with its number, and True for the messages that it has written."""
        cursor, numbers = _bodies(values)
        for number in np.unique(numbers[cursor.active]).tolist():
            schema = self.schemas(number)
            if schema is not None:
                yield number, schema, pa.array(cursor.active & (numbers == number))

    def forgiving(self) -> "MessageReader":
        """The same reader, which forgives."""
        return replace(self, forgives=True)


def _bodies(values: pa.Array) -> tuple[Cursor, Whole]:
    """A cursor behind the header of each message, and the numbers of their schemas; other values are malformed."""
    _, offsets, data = values.buffers()
    bounds = np.zeros(1, np.int64)
    if len(values):
        bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    first, last = int(bounds[0]), int(bounds[-1])
    used = np.frombuffer(data, np.uint8)[first:last] if data is not None else np.empty(0, np.uint8)
    whole: Bytes = np.concatenate([used, np.zeros(ZEROS, np.uint8)])
    rows = len(values)
    all_active: Mask = np.ones(rows, np.bool_)
    cursor = Cursor(whole, bounds[:-1] - first, bounds[1:] - first, all_active, ~all_active, ~all_active)
    cursor.fail(values.is_null().to_numpy(zero_copy_only=False))
    header = cursor.plain(HEADER_BYTES)
    cursor.fail(header[:, 0] != MAGIC)
    return cursor, np.ascontiguousarray(header[:, 1:]).view(np.dtype(">i4"))[:, 0].astype(np.int64)


def _schema_id(message: bytes) -> int:
    return int.from_bytes(message[1:HEADER_BYTES], "big", signed=True)


def _in_place(parts: list[tuple[Whole, pa.Array]], kind: Struct, cursor: Cursor) -> pa.Array:
    """The rows in their original order, with NULL for malformed messages."""
    if len(parts) == 1 and cursor.active.all() and len(parts[0][0]) == len(cursor):
        return parts[0][1]
    arrays = [values for _, values in parts] or [all_null(0, arrow_type(kind))]
    position = np.zeros(len(cursor), np.int64)
    order = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in parts)])
    position[order] = np.arange(len(order))
    return pa.concat_arrays(arrays).take(pa.array(position, mask=~cursor.active))
