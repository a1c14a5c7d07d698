"""Decodes rows with Debezium's change events, for example from Kafka, to changes of a table's rows.

An upsert is the row after the change, a delete the key of the row before it. An update that changes the key is both.
The columns of a table with names in `KAFKA_COLUMNS` get Kafka's values, also in a delete: one of them may be the
sequence.

The types of new columns follow from the schema of an event: Avro's, or Kafka Connect's in a wrapper. Only those of bare
JSON follow from values. A delete brings no column if its row is not stored, but its key may need a wider one.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.avro.news import AvroNews
from lakesink.decode.avro.schema import WriterSchema
from lakesink.decode.debezium.envelopes import AFTER, BEFORE, EventColumns, EventReader, Events, with_keys_before
from lakesink.decode.debezium.json_events import JsonEvents
from lakesink.decode.debezium.placeholders import is_placeholder
from lakesink.decode.debezium.sorting import SortedEvents, sort_events, stored_rows
from lakesink.decode.documents import KAFKA_COLUMNS, VALUE, TaskDecoder, own_columns, with_exact
from lakesink.decode.json_raw import first_members
from lakesink.decode.json_scalars import Parsed, but, either
from lakesink.decode.misfits import Found, UnknownKeys
from lakesink.decode.news import News
from lakesink.decode.news_rows import JsonNews, NewsRows
from lakesink.decode.rescue import Rescue
from lakesink.rows.changed_rows import RowBatch, positions_in
from lakesink.rows.letters import Fault
from lakesink.rows.nested import all_null
from lakesink.rows.plan import DEBEZIUM_JSON, DELETED, ChangesPlan, WritePlan
from lakesink.rows.schema import Struct, arrow_type, exactly
from lakesink.rows.unfit import all_but
from lakesink_catalog.words import counted
from lakesink_protocol.errors import WriteError
from lakesink_protocol.measures import UNKNOWN_KEYS, UNREAD_BEFORE, Tally
from lakesink_protocol.row_changes import SPLITS, TOMBSTONES, Operation

MOST_PLACES = 20
"""Places that one error names."""


KEY = "key"
"""Kafka's column with the key of a message."""
Rests = Mapping[str, pa.Array]
"""Texts for the rescue column, by the rows of events."""
_UNKNOWN = Fault("OPERATION_UNKNOWN", detail="no change event of Debezium, or an unknown operation")


@dataclass(slots=True)
class DebeziumDecoder(TaskDecoder):
    """Decodes one task's events.

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
            columns_of = partial(event_columns, changes=self.plan.changes, rescue_column=self.plan.rescue_column)
            news = RowNews if self.plan.decode == DEBEZIUM_JSON else AvroNews
            finder = news(self.plan.news, self._columns.after, StoredRows(self._reader, columns_of))
            self._news = NewsRows(self.plan.news, finder.found)
        if self.plan.rescue_column:
            self._rescues = tuple(
                Rescue(columns, partial(self._reader.texts, row), refuses=is_placeholder)
                for row, columns in self._columns.stored.items()
            )

    @property
    def counts(self) -> Tally:
        return Tally({UNKNOWN_KEYS: self.unknown.count, UNREAD_BEFORE: self.unread})

    def _decode(self, batch: pa.RecordBatch) -> RowBatch:
        events = self._reader.events(batch.column(VALUE))
        found = sort_events(events, self._columns)
        if found.keyless.true_count and KEY in batch.schema.names:
            # The key of a message is that of its row before: if a database's key changes, Debezium writes two events.
            keyless = pc.indices_nonzero(found.keyless)
            keys = self._reader.keys(batch.column(KEY).take(keyless))
            events = with_keys_before(events, self._columns, keyless, keys)
            found = sort_events(events, self._columns)
        if found.truncates.true_count:
            raise WriteError.of("TRUNCATE", place=self._places_of(batch, found.truncates)[0][-60:])
        found = self._without_left(batch, events, found)
        found, rests = self._rescued(batch.column(VALUE), events, found)
        self._part_with(found.malformed, RowBatch(batch, batch), self._no_changes(batch, found))
        new = Tally({SPLITS: found.splits.true_count, TOMBSTONES: found.nothing.true_count})
        self.changed = Tally.total([self.changed, new])
        self.unread += found.unread.true_count
        self._places.advance(batch)
        return self._changed_rows(batch, events, found, rests)

    def _without_left(self, batch: pa.RecordBatch, events: Events, found: SortedEvents) -> SortedEvents:
        """Leave the events with news; those with a key that cannot become a column are malformed."""
        if self._news is None:
            return found
        _, left = self._without_news(batch, stored_rows(events, found, self._columns))
        if self._refused:
            found = found.refusing(pc.invert(all_but(batch.num_rows, self._refused)))
        return found if left is None else found.without(left)

    def _rescued(self, values: pa.Array, events: Events, found: SortedEvents) -> tuple[SortedEvents, Rests]:
        """The rest of each stored row, by the name of the row; an event is malformed if it cannot be kept."""
        rests: dict[str, pa.Array] = {}
        rows = {AFTER: (events.after, found.upserts), BEFORE: (events.before, pc.or_(found.deletes, found.splits))}
        for (row, columns), rescue in zip(self._columns.stored.items(), self._rescues, strict=False):
            parsed, some = rows[row]
            stored = pa.StructArray.from_arrays([one.values for one in parsed], fields=list(arrow_type(columns)))
            rest = None if events.rest is None else pc.and_(events.rest, some)
            kept, rests[row] = rescue.kept(values, Parsed(stored, None, rest))
            if kept.misfits is not None:
                found = found.refusing(kept.misfits)
        return found, rests

    def _no_changes(self, batch: pa.RecordBatch, found: SortedEvents) -> dict[int, Fault]:
        """The faults of events that are no changes, though they should be; raises WriteError if none is put aside."""
        keys = self._columns.keys
        if self.put_aside is None and found.unknown.true_count:
            places, documents = self._places_of(batch, found.unknown), counted(found.unknown.true_count, "document")
            raise WriteError.of("OPERATION_UNKNOWN", details=places, documents=documents, first=places[0][-60:])
        if self.put_aside is None and found.keyless.true_count:
            places, events = self._places_of(batch, found.keyless), counted(found.keyless.true_count, "event")
            names, first = ", ".join(keys)[:25], places[0][-60:]
            raise WriteError.of("KEY_MISSING", details=places, events=events, keys=names, first=first)
        keyless = Fault("KEY_MISSING", keys[0], f"no key in the row before the change: {', '.join(keys)}")
        pairs = ((found.unknown, _UNKNOWN), (found.keyless, keyless))
        return {at: fault for mask, fault in pairs for at in pc.indices_nonzero(mask).to_pylist()}

    def _explain(self, values: pa.Array) -> list[list[Found]]:
        return self._reader.explain(values)

    def _places_of(self, batch: pa.RecordBatch, mask: pa.BooleanArray) -> list[str]:
        return [self._places.of(batch, position) for position in pc.indices_nonzero(mask)[:MOST_PLACES].to_pylist()]

    def _changed_rows(self, batch: pa.RecordBatch, events: Events, found: SortedEvents, rests: Rests) -> RowBatch:
        rescue = self.plan.rescue_column
        after = _values(events.after, self._columns.after) | {rescue: rests.get(AFTER)}
        before = _values(events.before, self._columns.before) | {rescue: rests.get(BEFORE)}
        upserts, deletes = map(pc.indices_nonzero, (found.upserts, pc.or_(found.splits, found.deletes)))
        order = pc.array_sort_indices(pa.concat_arrays([deletes, upserts])) if len(deletes) else None

        def merged(of_deletes: pa.Array, of_upserts: pa.Array) -> pa.Array:
            """Deletes come before upserts of the same event."""
            return of_upserts if order is None else pa.concat_arrays([of_deletes, of_upserts]).take(order)

        def column(name: str) -> pa.Array:
            values, old = after[name], before.get(name)
            of_upserts = values if len(upserts) == len(values) else values.take(upserts)
            if order is None:
                return of_upserts
            if old is None:
                return merged(all_null(len(deletes), values.type), of_upserts)
            if name in self._columns.sequence and name not in self._columns.keys:
                old = pc.if_else(found.splits, values, old)  # a split has a sequence of its own
            return merged(old.take(deletes), of_upserts)

        kinds = pc.if_else(found.snapshots, int(Operation.SNAPSHOT), int(Operation.UPSERT)).take(upserts)
        operations = merged(pa.repeat(int(Operation.DELETE), len(deletes)), kinds).cast(pa.int8())
        at = merged(deletes, upserts)
        places, offsets = (one.take(at) for one in positions_in(batch))
        rows = {
            one.name: batch.column(KAFKA_COLUMNS[one.name]).take(at) if one.name in KAFKA_COLUMNS else column(one.name)
            for one in self.schema.fields
            if one.name in KAFKA_COLUMNS or one.name in after
        }
        values = pa.RecordBatch.from_pydict(rows)
        return RowBatch(values, batch, at, operations, places, offsets)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Reads the rows that a table gets as documents of their own; see `lakesink.decode.avro.news.ReadsBySchema`."""

    reader: EventReader
    columns_of: Callable[[Struct], EventColumns]
    forgives: bool = False

    def documents(self, values: pa.Array, kind: Struct) -> Parsed:
        """The rows; a delete that is not stored has none, and is a misfit if its key does not fit."""
        columns = self.columns_of(kind)
        events = self.reader.reading(columns, forgives=self.forgives).events(values)
        return stored_rows(events, sort_events(events, columns), columns)

    def texts(self, values: pa.Array, without: Collection[str] = ()) -> Iterable[str]:
        """The rows as JSON."""
        rows = (self.reader.texts(row, values, without) for row in (AFTER, BEFORE))
        return (before if after == "null" else after for after, before in zip(*rows, strict=True))

    def by_schema(self, values: pa.Array) -> Iterator[tuple[int, WriterSchema, pa.BooleanArray]]:
        """The schemas of the rows."""
        return self.reader.by_schema(values)

    def forgiving(self) -> "StoredRows":
        """The same reader, which forgives."""
        return StoredRows(self.reader, self.columns_of, forgives=True)


@dataclass(slots=True)
class RowNews(JsonNews):
    """The news of rows of events as JSON, in wrappers with a schema or bare."""

    reader: StoredRows
    _by_schema: AvroNews = field(init=False)

    def __post_init__(self) -> None:
        JsonNews.__post_init__(self)
        self._by_schema = AvroNews(self.plan, self.struct, self.reader)

    def found(self, documents: pa.Array, parsed: Parsed) -> Iterator[tuple[Sequence[int], News]]:
        yield from self._by_schema.found(documents, parsed)
        wrapped = reduce(either, (written for _, _, written in self.reader.by_schema(documents)), None)
        bare = Parsed(parsed.values, but(parsed.misfits, wrapped), but(parsed.rest, wrapped))
        yield from JsonNews.found(self, documents, bare)

    def news_of(self, document: str) -> News:
        """The news of the row that is stored, and of the key before the change."""
        columns = self.reader.columns_of(self.struct)
        after, before = (row or "" for row in first_members(document, (AFTER, BEFORE)))
        has_row, had_row = after.startswith("{"), before.startswith("{")
        found = self.finder.of(after) if has_row else News()
        if had_row and columns.keeps_deleted and not has_row:
            return self.finder.of(before)
        if had_row:
            wide = self.finder.of(before).widened.items()
            found.include(News(widened={place: name for place, name in wide if place[0] in columns.of_delete}))
        return found


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
        raise WriteError.of("DECODER_MISSING", library="numpy") from None
    schemas = schemas_of(plan.schema_registry, plan.writer_schemas, connect_names=True)
    return AvroEvents(columns, schemas, counted_keys, plan.binary_encoding, forgives=keeps)
