"""Decodes rows with Debezium's change events, for example from Kafka, to changes of a table's rows.

An upsert is the row after the change, a delete the key of the row before it. An update that changes the key is both.
The columns of a table with names in `KAFKA_COLUMNS` get Kafka's values, also in a delete: one of them may be the
sequence.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.debezium.envelopes import AFTER, BEFORE, EventColumns, EventReader, Events, with_keys_before
from lakesink.decode.debezium.json_events import JsonEvents
from lakesink.decode.debezium.placeholders import RowRescue
from lakesink.decode.debezium.sorting import SortedEvents, sort_events, stored_rows
from lakesink.decode.documents import KAFKA_COLUMNS, VALUE, TaskDecoder, own_columns, with_exact
from lakesink.decode.json_scalars import Parsed
from lakesink.decode.misfits import Found, UnknownKeys
from lakesink.decode.news_rows import NewsRows
from lakesink.rows.changed_rows import RowBatch, positions_in
from lakesink.rows.letters import Fault
from lakesink.rows.nested import all_null
from lakesink.rows.plan import DEBEZIUM_JSON, DELETED, ChangesPlan, WritePlan
from lakesink.rows.schema import Struct, arrow_type, exactly
from lakesink.rows.task_errors import decoder_missing
from lakesink.rows.unfit import all_but
from lakesink_catalog.words import counted
from lakesink_protocol.errors import WriteError
from lakesink_protocol.measures import UNKNOWN_KEYS, UNREAD_BEFORE, Tally
from lakesink_protocol.row_changes import SPLITS, TOMBSTONES, Operation

MOST_PLACES = 20
"""Places that one error names."""


def operation_unknown(places: Sequence[str], count: int) -> WriteError:
    """Documents are no change events, or have an operation that is unknown."""
    return WriteError.of(
        "OPERATION_UNKNOWN",
        details=places[:MOST_PLACES],
        documents=counted(count, "document"),
        first=places[0][-60:],
    )


def truncated(place: str) -> WriteError:
    """The source table was truncated."""
    return WriteError.of("TRUNCATE", place=place[-60:])


def key_missing(places: Sequence[str], count: int, keys: Sequence[str]) -> WriteError:
    """The row before a delete or an update lacks columns of the key."""
    return WriteError.of(
        "KEY_MISSING",
        details=places[:MOST_PLACES],
        events=counted(count, "event"),
        keys=", ".join(keys)[:25],
        first=places[0][-60:],
    )


KEY = "key"
"""Kafka's column with the key of a message."""
Rests = Mapping[str, pa.Array]
"""Texts for the rescue column, by the rows of events."""
_UNKNOWN = Fault("OPERATION_UNKNOWN", detail="no change event of Debezium, or an unknown operation")


@dataclass(slots=True)
class DebeziumDecoder(TaskDecoder):
    """Decodes one task's events; see `lakesink.rows.changed_rows.DocumentDecoder`.

    Every row is an upsert, a delete or a tombstone, and a split is a delete more.

    Attributes:
        changed: Events that became two changes, and rows without a change: NULLs, and messages that applications write
            to the database's log.
        unread: Deletes in a changelog without values that do not fit, see `SortedEvents`.
    """

    unread: int = field(default=0, init=False)
    _columns: EventColumns = field(init=False)
    _reader: EventReader = field(init=False)

    def __post_init__(self) -> None:
        TaskDecoder.__post_init__(self)
        assert self.plan.changes is not None
        self._columns = event_columns(self.schema, self.plan.changes, self.plan.rescue_column)
        self._reader = reader_of(self.plan, self._columns, self.unknown)
        if self.plan.news is not None:
            from lakesink.decode.avro.news import AvroNews  # needs NumPy, which is optional
            from lakesink.decode.debezium.row_news import RowNews, StoredRows

            columns_of = partial(event_columns, changes=self.plan.changes, rescue_column=self.plan.rescue_column)
            news = RowNews if self.plan.decode == DEBEZIUM_JSON else AvroNews
            finder = news(self.plan.news, self._columns.after, StoredRows(self._reader, columns_of))
            self._news = NewsRows(self.plan.news, finder)
        if self.plan.rescue_column:
            stored = self._columns.stored.items()
            self._rescues = tuple(RowRescue(columns, partial(self._texts, row=row)) for row, columns in stored)

    @property
    def counts(self) -> Tally:
        """See `TaskDecoder`."""
        return Tally({UNKNOWN_KEYS: self.unknown.count, UNREAD_BEFORE: self.unread})

    def _decode(self, batch: pa.RecordBatch) -> RowBatch:
        events = self._reader.events(batch.column(VALUE))
        found = sort_events(events, self._columns)
        if _any(found.keyless) and KEY in batch.schema.names:
            events = self._with_keys_of_messages(batch, events, found)
            found = sort_events(events, self._columns)
        if _any(found.truncates):
            raise truncated(self._places_of(batch, found.truncates)[0])
        found = self._without_left(batch, events, found)
        found, rests = self._rescued(batch.column(VALUE), events, found)
        if self.put_aside is None:
            self._refuse(batch, found)
        else:
            faults = self._all_faults(batch, found)
            if faults:
                self.put_aside(RowBatch(batch, batch), faults)
        new = Tally({SPLITS: _count(found.splits), TOMBSTONES: _count(found.nothing)})
        self.changed = Tally.total([self.changed, new])
        self.unread += _count(found.unread)
        self._places.advance(batch)
        return self._changed_rows(batch, events, found, rests)

    def _without_left(self, batch: pa.RecordBatch, events: Events, found: SortedEvents) -> SortedEvents:
        """Leave the events with news; those with a key that cannot become a column are malformed."""
        if self._news is None:
            return found
        _, stay = self._without_news(batch, stored_rows(events, found, self._columns))
        if self._refused:
            found = found.refusing(pc.invert(all_but(batch.num_rows, self._refused)))
        return found if stay is None else found.without(pc.invert(stay))

    def _rescued(self, values: pa.Array, events: Events, found: SortedEvents) -> tuple[SortedEvents, Rests]:
        """The rest of each stored row, by the name of the row; an event is malformed if it cannot be kept."""
        rests: dict[str, pa.Array] = {}
        for row, rescue in zip(self._columns.stored, self._rescues, strict=False):
            parsed, some = (
                (events.after, found.upserts) if row == AFTER else (events.before, pc.or_(found.deletes, found.splits))
            )
            rows = pa.StructArray.from_arrays(
                [one.values for one in parsed], fields=list(arrow_type(self._columns.stored[row]))
            )
            rest = None if events.rest is None else pc.and_(events.rest, some)
            kept, rests[row] = rescue.kept(values, Parsed(rows, None, rest))
            if kept.misfits is not None:
                found = found.refusing(kept.misfits)
        return found, rests

    def _texts(self, values: pa.Array, without: Collection[str], row: str) -> Iterable[str]:
        return self._reader.texts(values, row, without)

    def _with_keys_of_messages(self, batch: pa.RecordBatch, events: Events, found: SortedEvents) -> Events:
        """The events; those without a key before the change get the key of their message.

        An event has the key of its row before the change: if a database's key changes, Debezium writes two events.
        """
        positions = pc.indices_nonzero(found.keyless)
        return with_keys_before(events, self._columns, positions, self._reader.keys(batch.column(KEY).take(positions)))

    def _refuse(self, batch: pa.RecordBatch, found: SortedEvents) -> None:
        if _any(found.unknown):
            raise operation_unknown(self._places_of(batch, found.unknown), _count(found.unknown))
        if _any(found.keyless):
            raise key_missing(self._places_of(batch, found.keyless), _count(found.keyless), self._columns.keys)
        self._collect(found.malformed, batch)

    def _all_faults(self, batch: pa.RecordBatch, found: SortedEvents) -> dict[int, Fault]:
        """Of all events that are no changes, though they should be."""
        keys = ", ".join(self._columns.keys)
        keyless = Fault("KEY_MISSING", self._columns.keys[0], f"no key in the row before the change: {keys}")
        return {
            **dict.fromkeys(_positions(found.unknown), _UNKNOWN),
            **dict.fromkeys(_positions(found.keyless), keyless),
            **self._faults(found.malformed, batch),
        }

    def _explain(self, values: pa.Array) -> list[list[Found]]:
        return self._reader.explain(values)

    def _places_of(self, batch: pa.RecordBatch, mask: pa.BooleanArray) -> list[str]:
        return [self._places.of(batch, position) for position in pc.indices_nonzero(mask)[:MOST_PLACES].to_pylist()]

    def _changed_rows(self, batch: pa.RecordBatch, events: Events, found: SortedEvents, rests: Rests) -> RowBatch:
        """Deletes come before upserts of the same event."""
        chosen = _Chosen(*map(pc.indices_nonzero, (found.splits, found.deletes, found.upserts)))
        order = None if chosen.only_upserts else pc.array_sort_indices(chosen.positions)
        snapshots = pc.if_else(found.snapshots, int(Operation.SNAPSHOT), int(Operation.UPSERT)).take(chosen.upserts)
        deletes = pa.repeat(int(Operation.DELETE), len(chosen.positions) - len(chosen.upserts))
        operations = pa.concat_arrays([one.cast(pa.int8()) for one in (deletes, snapshots)])
        places, offsets = (one.take(chosen.positions) for one in positions_in(batch))
        rescue = self.plan.rescue_column
        after = _values(events.after, self._columns.after) | {rescue: rests.get(AFTER)}
        before = _values(events.before, self._columns.before) | {rescue: rests.get(BEFORE)}
        columns = {
            one.name: batch.column(KAFKA_COLUMNS[one.name]).take(chosen.positions)
            if one.name in KAFKA_COLUMNS
            else self._column(one.name, after[one.name], before.get(one.name), chosen)
            for one in self.schema.fields
            if one.name in KAFKA_COLUMNS or one.name in after
        }
        arrays = [*columns.values(), chosen.positions, operations, places, offsets]
        *rows, at, operations, places, offsets = arrays if order is None else [one.take(order) for one in arrays]
        return RowBatch(pa.RecordBatch.from_arrays(rows, names=list(columns)), batch, at, operations, places, offsets)

    def _column(self, name: str, after: pa.Array, before: pa.Array | None, chosen: "_Chosen") -> pa.Array:
        upserts = after if len(chosen.upserts) == len(after) else after.take(chosen.upserts)
        if chosen.only_upserts:
            return upserts
        if before is None:
            none = len(chosen.splits) + len(chosen.deletes)
            return pa.concat_arrays([all_null(none, after.type), upserts])
        of_splits = (
            after if name in self._columns.sequence and name not in self._columns.keys else before
        )  # its own sequence
        return pa.concat_arrays([of_splits.take(chosen.splits), before.take(chosen.deletes), upserts])


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Positions of the events that become changes: deletes of splits, other deletes, upserts."""

    splits: pa.Array
    deletes: pa.Array
    upserts: pa.Array

    @property
    def positions(self) -> pa.Array:
        """All of them."""
        return pa.concat_arrays([self.splits, self.deletes, self.upserts])

    @property
    def only_upserts(self) -> bool:
        """True if there are no deletes."""
        return not len(self.splits) and not len(self.deletes)


def event_columns(schema: Struct, changes: ChangesPlan, rescue_column: str = "") -> EventColumns:
    """The columns of a table that are read of an event; of a row before the change, those that a delete needs.

    A delete that is stored, in the table or in a changelog, needs all of them.
    """
    needed = {*changes.keys, *changes.sequence}
    own = with_exact(own_columns(schema, rescue_column), needed).fields
    own = tuple(one for one in own if not (changes.soft_deletes and one.name == DELETED))
    whole = changes.soft_deletes or changes.has_changelog
    some = (replace(one, required=False) for one in own if whole or one.field_id in needed)
    before = tuple(some if changes.soft_deletes else map(exactly, some))
    names = {one.field_id: one.name for one in own}
    keys, sequence = (
        tuple(names[number] for number in some if number in names) for some in (changes.keys, changes.sequence)
    )
    return EventColumns(Struct(own), Struct(before), keys, sequence, changes.soft_deletes)


def _values(columns: tuple[Parsed, ...], struct: Struct) -> dict[str, pa.Array]:
    return {one.name: parsed.values for one, parsed in zip(struct.fields, columns, strict=True)}


def _count(mask: pa.BooleanArray) -> int:
    return int(pc.sum(mask, min_count=0).as_py())


def _any(mask: pa.BooleanArray) -> bool:
    return bool(pc.any(mask, min_count=0).as_py())


def _positions(mask: pa.BooleanArray) -> list[int]:
    found: list[int] = pc.indices_nonzero(mask).to_pylist()
    return found


def reader_of(plan: WritePlan, columns: EventColumns, unknown: UnknownKeys) -> EventReader:
    """The reader for one task; raises `WriteError` if a library is missing."""
    keeps = bool(plan.rescue_column)
    finds = keeps or plan.news is not None
    counted_keys = None if finds else unknown
    if plan.decode == DEBEZIUM_JSON:
        return JsonEvents(columns, counted_keys, plan.binary_encoding, finds=finds, forgives=keeps)
    try:
        from lakesink.decode.avro.registry import schemas_of  # an optional dependency, for Avro only
        from lakesink.decode.debezium.avro_events import AvroEvents
    except ModuleNotFoundError:
        raise decoder_missing("numpy") from None
    schemas = schemas_of(plan.schema_registry, plan.writer_schemas, connect_names=True)
    return AvroEvents(columns, schemas, counted_keys, plan.binary_encoding, forgives=keeps)
