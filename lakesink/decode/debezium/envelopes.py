"""Change events of either format as columns: operations, and the rows after and before each change."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.avro.schema import WriterSchema
from lakesink.decode.json_scalars import Parsed
from lakesink.decode.misfits import Found
from lakesink.rows.nested import replaced
from lakesink.rows.schema import Field, Struct

CREATE, UPDATE, DELETE, READ, TRUNCATE, MESSAGE = "c", "u", "d", "r", "t", "m"
AFTER, BEFORE, OPERATION = "after", "before", "op"
_ROWS: Mapping[str, tuple[str, ...]] = {CREATE: (AFTER,), READ: (AFTER,), UPDATE: (AFTER, BEFORE), DELETE: (BEFORE,)}
"""The rows of an event that its operation needs."""


@dataclass(frozen=True, slots=True)
class EventColumns:
    """The columns that are read of an event.

    Attributes:
        after: Columns of the row after the change.
        before: Columns of the row before it; all optional.
        keys: Names of the key's columns, which both have.
        sequence: Names of the columns that order changes; an update has them in the row after.
        keeps_deleted: True if a delete stores the row before in the table, and not in a changelog only.
    """

    after: Struct
    before: Struct
    keys: tuple[str, ...]
    sequence: tuple[str, ...] = ()
    keeps_deleted: bool = False

    @property
    def stored(self) -> Mapping[str, Struct]:
        """The columns of those rows of an event that the table may get."""
        return {AFTER: self.after} | ({BEFORE: self.before} if self.keeps_deleted else {})

    @property
    def key(self) -> Struct:
        """The columns of the key."""
        return Struct(tuple(one for one in self.before.fields if one.name in self.keys))

    @property
    def of_delete(self) -> frozenset[str]:
        """Columns of the row before that must fit if it is deleted; others may be NULL in a changelog."""
        stored = (one.name for one in self.before.fields if self.keeps_deleted)
        return frozenset((*self.keys, *self.sequence, *stored))

    @property
    def of_split(self) -> frozenset[str]:
        """The same if an update changes the key."""
        return self.of_delete - (frozenset(self.sequence) - frozenset(self.keys))


@dataclass(frozen=True, slots=True)
class Events:
    """The events of some documents, one for each.

    Attributes:
        operations: NULL for a document that is no event.
        empty: True for a document without an event: NULL.
        unreadable: True for a document that is malformed as a whole.
        has_before: True if there is a row before the change.
        after: Values of each column, and the values that do not fit.
        before: The same of the row before the change.
        rest: True for events with a stored row of which the values hold only a part; None if there is none.
    """

    operations: pa.StringArray
    empty: pa.BooleanArray
    unreadable: pa.BooleanArray
    has_before: pa.BooleanArray
    after: tuple[Parsed, ...]
    before: tuple[Parsed, ...]
    rest: pa.BooleanArray | None = None


class EventReader(Protocol):
    """Reads events of one format for one task."""

    def reading(self, columns: EventColumns, *, forgives: bool) -> "EventReader":
        """A reader of other columns, which counts nothing."""

    def by_schema(self, values: pa.Array) -> Iterator[tuple[int, WriterSchema, pa.BooleanArray]]:
        """The schemas of rows, each with a number of its own, and True for the events that it has written.

        `events` has read the events, and no others since.
        """

    def events(self, values: pa.Array) -> Events:
        """The events of documents."""

    def keys(self, values: pa.Array) -> tuple[pa.Array, ...]:
        """The columns of the key from the keys of Kafka's records; NULL where they do not have them."""

    def explain(self, values: pa.Array) -> list[list[Found]]:
        """For each of a few malformed documents, the values that do not fit."""

    def texts(self, row: str, values: pa.Array, without: Collection[str] = ()) -> Iterable[str]:
        """A row of each event as JSON; the members of some names may be left out. `events` has accepted the events."""


def misfits_in(columns: Sequence[Parsed], struct: Struct, rows: int) -> pa.BooleanArray:
    """True for rows with a value that does not fit, or without one that is required."""
    found = pa.repeat(pa.scalar(value=False), rows)
    for parsed, field in zip(columns, struct.fields, strict=True):
        if parsed.misfits is not None:
            found = pc.or_(found, parsed.misfits)
        if field.required and parsed.values.null_count:
            found = pc.or_(found, parsed.values.is_null())
    return found


def wrong_columns(events: Events, columns: EventColumns) -> tuple[str, list[tuple[Field, Parsed]]]:
    """Of one event, the first row that its operation needs with columns that do not fit, and these columns."""
    operation = events.operations[0].as_py()
    needed = columns.of_delete if operation == DELETE else columns.of_split
    after = list(zip(columns.after.fields, events.after, strict=True))
    before = [pair for pair in zip(columns.before.fields, events.before, strict=True) if pair[0].name in needed]
    for row in _ROWS.get(operation, ()):
        pairs = after if row == AFTER else before
        found = [(one, parsed) for one, parsed in pairs if misfits_in([parsed], Struct((one,)), 1)[0].as_py()]
        if found:
            return row, found
    return "", []


def together(parts: Sequence[tuple[pa.Array, Events]]) -> Events:
    """The events of some documents as those of all, each at its position; the last one counts."""
    if len(parts) == 1:
        return parts[0][1]
    positions, events = pa.concat_arrays([some for some, _ in parts]), [one for _, one in parts]
    order = pc.inverse_permutation(positions, max_index=pc.max(positions).as_py())

    def joined(arrays: Iterable[pa.Array | None]) -> pa.Array | None:
        """None for masks of which all are None."""
        found = list(arrays)
        if all(one is None for one in found):
            return None
        none = (pa.repeat(pa.scalar(value=False), len(one.empty)) for one in events)
        return pa.concat_arrays([no if one is None else one for one, no in zip(found, none, strict=True)]).take(order)

    def columns(rows: Iterable[tuple[Parsed, ...]]) -> tuple[Parsed, ...]:
        same = zip(*rows, strict=True)
        return tuple(Parsed(joined(one.values for one in some), joined(one.misfits for one in some)) for some in same)

    masks = ("operations", "empty", "unreadable", "has_before", "rest")
    return Events(
        after=columns(one.after for one in events),
        before=columns(one.before for one in events),
        **{name: joined(getattr(one, name) for one in events) for name in masks},
    )


def with_keys_before(events: Events, columns: EventColumns, positions: pa.Array, keys: Sequence[pa.Array]) -> Events:
    """The events with other keys of the rows before, at some positions."""
    found = dict(zip((one.name for one in columns.key.fields), keys, strict=True))
    before = (
        replace(parsed, values=replaced(parsed.values, positions, found[one.name])) if one.name in found else parsed
        for one, parsed in zip(columns.before.fields, events.before, strict=True)
    )
    return replace(events, before=tuple(before))
