"""Reads Debezium's Avro: envelopes as records in Confluent's wire format, with the names of Kafka Connect's types."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.avro.kinds import unknown_fields
from lakesink.decode.avro.messages import MESSAGE, MessageReader, Schemas
from lakesink.decode.avro.schema import Record, WriterSchema
from lakesink.decode.debezium.envelopes import (
    AFTER,
    BEFORE,
    OPERATION,
    EventColumns,
    Events,
    wrong_columns,
)
from lakesink.decode.debezium.placeholders import available, unavailable
from lakesink.decode.json_scalars import Parsed, either
from lakesink.decode.misfits import Found, Path
from lakesink.decode.unknown_keys import UnknownKeys
from lakesink.writer.schema import Field, Primitive, Struct, Type, sql_type_of


@dataclass(slots=True)
class AvroEvents:
    """Reads events for one task; see `envelopes.EventReader`."""

    columns: EventColumns
    schemas: Schemas
    unknown: UnknownKeys | None = None
    _reader: MessageReader = field(init=False)
    _envelope: Struct = field(init=False)
    _unknown: dict[int, list[Path]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reader = MessageReader(self.schemas)
        parts: dict[str, Type] = {
            OPERATION: Primitive("string"),
            AFTER: self.columns.after,
            BEFORE: self.columns.before,
        }
        self._envelope = Struct(tuple(Field(0, name, required=False, type=kind) for name, kind in parts.items()))

    def events(self, values: pa.Array) -> Events:
        """The events of binary messages."""
        parsed = self._reader.documents(values, self._envelope)
        self._count_unknown(values)
        operations, after, before = parsed.values.flatten()
        empty = values.is_null()
        wrong = parsed.values.is_null() if parsed.misfits is None else either(parsed.misfits, parsed.values.is_null())
        return Events(
            operations=operations,
            empty=empty,
            unreadable=pc.and_not(wrong, empty),
            has_before=before.is_valid(),
            after=tuple(available(Parsed(column)) for column in after.flatten()),
            before=tuple(available(Parsed(column)) for column in before.flatten()),
        )

    def keys(self, values: pa.Array) -> tuple[pa.Array, ...]:
        """The columns of the key from messages; NULL for other bytes."""
        return tuple(self._reader.documents(values.cast(pa.binary()), self.columns.key).values.flatten())

    def explain(self, values: pa.Array) -> list[list[Found]]:
        """For each of a few malformed messages, the values that do not fit."""
        alone = AvroEvents(self.columns, self.schemas)  # a second reading must not count unknown fields again
        return [alone._explained(values.slice(at, 1)) for at in range(len(values))]

    def _explained(self, value: pa.Array) -> list[Found]:
        events = self.events(value)
        if events.unreadable[0].as_py():
            return self._reader.explain(value, self._envelope)[0]
        row, wrong = wrong_columns(events, self.columns)
        found = [_of_column(row, one, parsed) for one, parsed in wrong]
        return found or [Found("a message that is not read", expected=MESSAGE)]

    def _count_unknown(self, values: pa.Array) -> None:
        """Count the fields of rows after the change for which there is no column, by schema."""
        if self.unknown is None:
            return
        numbers, framed = self._reader.schema_ids(values)
        for number, rows in zip(*np.unique(numbers[framed], return_counts=True), strict=True):
            if int(number) not in self._unknown:
                self._unknown[int(number)] = self._unknown_fields(self._reader.schema(int(number)))
            for path in self._unknown[int(number)]:
                self.unknown.add(path[:-1], [(path[-1], int(rows))])

    def _unknown_fields(self, schema: WriterSchema | None) -> list[Path]:
        if schema is None or not isinstance(schema.root, Record):
            return []
        after = dict(schema.root.fields).get(AFTER)
        return [] if after is None else unknown_fields(WriterSchema(after, schema.named), self.columns.after)


def _of_column(row: str, column: Field, parsed: Parsed) -> Found:
    if parsed.misfits is not None and parsed.misfits[0].as_py():
        return unavailable(column)
    return Found("null or no value", column=f"{row}.{column.name}", expected=sql_type_of(column.type))
