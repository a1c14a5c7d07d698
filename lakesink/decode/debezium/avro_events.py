"""Reads Debezium's Avro: envelopes as records in Confluent's wire format, with the names of Kafka Connect's types."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.avro.kinds import unknown_fields
from lakesink.decode.avro.messages import MESSAGE, REST_NOT_KEPT, MessageReader, Schemas
from lakesink.decode.avro.schema import Record, WriterSchema
from lakesink.decode.debezium.envelopes import AFTER, BEFORE, OPERATION, EventColumns, Events, together, wrong_columns
from lakesink.decode.debezium.placeholders import IN_REST, available, is_placeholder, unavailable
from lakesink.decode.json_raw import first_members
from lakesink.decode.json_scalars import Parsed, either
from lakesink.decode.misfits import Found, Path, UnknownKeys
from lakesink.rows.plan import BinaryEncoding
from lakesink.rows.scalars import TRUE
from lakesink.rows.schema import Field, Primitive, Struct, Type, sql_type_of

_OTHERS = frozenset({AFTER, BEFORE, "source", "transaction"})
"""Long members of an envelope."""


@dataclass(slots=True)
class AvroEvents:
    """Reads events for one task; see `envelopes.EventReader`."""

    columns: EventColumns
    schemas: Schemas
    unknown: UnknownKeys | None = None
    encoding: BinaryEncoding | None = None
    forgives: bool = False
    _reader: MessageReader = field(init=False)
    _envelope: Struct = field(init=False)
    _unknown: dict[int, list[Path]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._reader = MessageReader(self.schemas, forgives=self.forgives, encoding=self.encoding)
        before = replace(self.columns.before, is_open=not self.columns.keeps_deleted)
        self._envelope = _envelope({OPERATION: Primitive("string"), AFTER: self.columns.after, BEFORE: before})

    def events(self, values: pa.Array) -> Events:
        """The events of binary messages."""
        self._count_unknown(values)
        found = self._events(values, self._envelope)
        wrong = pc.indices_nonzero(found.unreadable).cast(pa.int64())
        if not len(wrong):
            return found
        everywhere = pa.arange(0, len(values))
        return together([(everywhere, found), (wrong, self._with_columns_before_apart(values.take(wrong)))])

    def _events(self, values: pa.Array, envelope: Struct) -> Events:
        parsed = self._reader.documents(values, envelope)
        operations, after, *before = parsed.values.flatten()
        empty = values.is_null()
        wrong = either(parsed.misfits, parsed.values.is_null())
        return Events(
            operations=operations,
            empty=empty,
            unreadable=pc.and_not(wrong, empty),
            has_before=before[0].is_valid() if before else empty,
            after=tuple(available(Parsed(column)) for column in after.flatten()),
            before=tuple(available(Parsed(column)) for row in before for column in row.flatten()),
            rest=parsed.rest,
        )

    def _with_columns_before_apart(self, values: pa.Array) -> Events:
        """The events; a value in the row before that does not fit makes neither the row after nor others malformed."""
        found = self._events(values, replace(self._envelope, fields=self._envelope.fields[:2]))
        has_before, before = None, []
        for column in self.columns.before.fields:
            parsed = self._reader.documents(values, _envelope({BEFORE: Struct((column,), is_open=True)}))
            [row] = parsed.values.flatten()
            has_before = reduce(either, (row.is_valid(), parsed.misfits), has_before)
            before.append(available(Parsed(row.flatten()[0], parsed.misfits)))
        rest = pa.repeat(TRUE, len(values))  # perhaps
        return replace(found, has_before=has_before, before=tuple(before), rest=rest)

    def keys(self, values: pa.Array) -> tuple[pa.Array, ...]:
        """The columns of the key from messages; NULL for other bytes."""
        return tuple(self._reader.documents(values.cast(pa.binary()), self.columns.key).values.flatten())

    def explain(self, values: pa.Array) -> list[list[Found]]:
        """For each of a few malformed messages, the values that do not fit."""
        # A second reading must not count unknown fields again.
        alone = replace(self, unknown=None)
        return [alone.why_not(values.slice(at, 1)) for at in range(len(values))]

    def why_not(self, value: pa.Array) -> list[Found]:
        """The values of one malformed message that do not fit."""
        events = self.events(value)
        row, wrong = wrong_columns(events, self.columns)
        unfit = events if row == AFTER else self._events(value, self._envelope)
        if unfit.unreadable[0].as_py():
            return self._reader.explain(value, self._envelope)[0]
        found = [_of_column(row, one, parsed) for one, parsed in wrong]
        if found or not self.forgives:
            return found or [Found("a message that is not read", expected=MESSAGE)]
        rows = (text for name in self.columns.stored for text in self.texts(name, value))
        return [IN_REST if any(map(is_placeholder, rows)) else REST_NOT_KEPT]

    def texts(self, row: str, values: pa.Array, without: Collection[str] = ()) -> Iterator[str]:  # noqa: ARG002 - of the row
        for text in self._reader.texts(values, _OTHERS - {row}):
            [found] = first_members(text, (row,))
            yield found or "null"

    def _count_unknown(self, values: pa.Array) -> None:
        """Count the fields of rows after the change for which there is no column, by schema."""
        if self.unknown is None:
            return
        for number, schema, written in self.by_schema(values):
            if number not in self._unknown:
                self._unknown[number] = unknown_fields(schema, self.columns.after)
            for path in self._unknown[number]:
                self.unknown.add(path[:-1], [(path[-1], written.true_count)])

    def reading(self, columns: EventColumns, *, forgives: bool) -> "AvroEvents":
        return replace(self, columns=columns, forgives=forgives, unknown=None)

    def by_schema(self, values: pa.Array) -> Iterator[tuple[int, WriterSchema, pa.BooleanArray]]:
        for number, schema, written in self._reader.by_schema(values):
            after = dict(schema.root.fields).get(AFTER) if isinstance(schema.root, Record) else None
            if after is not None:
                yield number, WriterSchema(after, schema.named), written


def _of_column(row: str, column: Field, parsed: Parsed) -> Found:
    if parsed.misfits is not None and parsed.misfits[0].as_py():
        return unavailable(column)
    return Found("null or no value", column=f"{row}.{column.name}", expected=sql_type_of(column.type))


def _envelope(parts: Mapping[str, Type]) -> Struct:
    """Some parts of an event; nobody asks for the others."""
    fields = (Field(0, name, required=False, type=kind, is_exact=True) for name, kind in parts.items())
    return Struct(tuple(fields), is_open=True)
