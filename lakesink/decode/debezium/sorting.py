"""Decides what each event of a batch is: an upsert, a delete, both, nothing, or a fault. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from itertools import repeat

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.debezium import envelopes
from lakesink.decode.json_scalars import Parsed
from lakesink.rows.nested import replaced
from lakesink.rows.scalars import FALSE
from lakesink.rows.schema import Struct, arrow_type

_UPSERTS = (envelopes.CREATE, envelopes.UPDATE, envelopes.READ)
_KNOWN = (*_UPSERTS, envelopes.DELETE, envelopes.TRUNCATE, envelopes.MESSAGE)


@dataclass(frozen=True, slots=True)
class SortedEvents:
    """One mask for each kind of event.

    Attributes:
        upserts: Events with a row after the change.
        snapshots: Those of them that are of the initial load.
        deletes: Events that delete the key of the row before.
        splits: Upserts that also delete the key of the row before, which is another one.
        nothing: Tombstones, and messages that are no change of a row.
        truncates: Events that empty the source table.
        unknown: Documents that are no events, or have another operation.
        malformed: Documents that cannot be read, or whose rows do not fit the columns.
        keyless: Deletes, and updates with a row before, without a whole key of that row.
        unread: Deletes and splits whose row before has values that do not fit, and which only a changelog keeps.
    """

    upserts: pa.BooleanArray
    snapshots: pa.BooleanArray
    deletes: pa.BooleanArray
    splits: pa.BooleanArray
    nothing: pa.BooleanArray
    truncates: pa.BooleanArray
    unknown: pa.BooleanArray
    malformed: pa.BooleanArray
    keyless: pa.BooleanArray
    unread: pa.BooleanArray

    def without(self, some: pa.BooleanArray) -> "SortedEvents":
        """The masks without some of the events."""
        return SortedEvents(*(pc.and_not(getattr(self, one.name), some) for one in fields(self)))

    def refusing(self, some: pa.BooleanArray) -> "SortedEvents":
        """The masks with some more events that are malformed."""
        found = self.without(some)
        return replace(found, malformed=pc.or_(found.malformed, some))


def sort_events(events: envelopes.Events, columns: envelopes.EventColumns) -> SortedEvents:
    """Sort events; every document is in exactly one mask, apart from snapshots and splits."""
    rows = len(events.operations)
    is_event = pc.and_not(pc.invert(events.empty), events.unreadable)
    known = pc.and_(_is(events.operations, *_KNOWN), is_event)
    is_upsert = pc.and_(_is(events.operations, *_UPSERTS), known)
    is_delete, is_update = (
        pc.and_(known, _is(events.operations, name)) for name in (envelopes.DELETE, envelopes.UPDATE)
    )
    has_key = reduce(pc.and_, [one.values.is_valid() for one in _keys(events.before, columns.before, columns.keys)])
    is_split = pc.and_(pc.and_(is_update, has_key), _has_other_key(events, columns))
    key, of_split, of_delete = (
        _misfits(events, columns, names) for names in (columns.keys, columns.of_split, columns.of_delete)
    )
    wrong = reduce(
        pc.or_,
        (
            pc.and_(is_upsert, envelopes.misfits_in(events.after, columns.after, rows)),
            pc.and_(is_update, key),
            pc.and_(is_split, of_split),
            pc.and_(is_delete, of_delete),
        ),
    )
    asked = pc.or_(is_delete, pc.and_(is_update, events.has_before))
    keyless = pc.and_not(pc.and_not(asked, has_key), wrong)
    fits = pc.invert(pc.or_(wrong, keyless))
    upserts, deletes, splits = (pc.and_(one, fits) for one in (is_upsert, is_delete, is_split))
    others = {one.name for one in columns.before.fields} - columns.of_delete
    return SortedEvents(
        upserts=upserts,
        snapshots=pc.and_(upserts, _is(events.operations, envelopes.READ)),
        deletes=deletes,
        splits=splits,
        nothing=pc.or_(events.empty, pc.and_(known, _is(events.operations, envelopes.MESSAGE))),
        truncates=pc.and_(known, _is(events.operations, envelopes.TRUNCATE)),
        unknown=pc.and_not(is_event, known),
        malformed=pc.or_(events.unreadable, wrong),
        keyless=keyless,
        unread=pc.and_(_misfits(events, columns, others), pc.or_(deletes, splits)),
    )


def stored_rows(events: envelopes.Events, found: SortedEvents, columns: envelopes.EventColumns) -> Parsed:
    """The row of each event that the table gets as its newest; NULL for others, and for malformed events."""
    values, with_row = [one.values for one in events.after], found.upserts
    if columns.keeps_deleted:
        at, with_row = pc.indices_nonzero(found.deletes), pc.or_(found.upserts, found.deletes)
        before = (one.values.take(at) for one in events.before)
        values = [replaced(*one) for one in zip(values, repeat(at), before, strict=False)]
    rows = pa.StructArray.from_arrays(values, fields=list(arrow_type(columns.after)), mask=pc.invert(with_row))
    return Parsed(rows, found.malformed, None if events.rest is None else pc.and_(events.rest, with_row))


def _misfits(events: envelopes.Events, columns: envelopes.EventColumns, names: Collection[str]) -> pa.BooleanArray:
    """True for events whose row before does not fit one of these columns."""
    pairs = zip(columns.before.fields, events.before, strict=True)
    chosen = [(one, parsed) for one, parsed in pairs if one.name in names]
    return envelopes.misfits_in(
        [parsed for _, parsed in chosen], Struct(tuple(one for one, _ in chosen)), len(events.operations)
    )


def _has_other_key(events: envelopes.Events, columns: envelopes.EventColumns) -> pa.BooleanArray:
    """True if the rows before and after have different keys; False without a row before."""
    pairs = zip(
        _keys(events.before, columns.before, columns.keys),
        _keys(events.after, columns.after, columns.keys),
        strict=True,
    )
    found = (pc.not_equal(before.values, after.values) for before, after in pairs)
    return reduce(pc.or_, (pc.fill_null(one, FALSE) for one in found))


def _keys(parsed: Sequence[Parsed], struct: Struct, keys: Sequence[str]) -> list[Parsed]:
    """The columns of the key, in the order of its names."""
    by_name = {one.name: column for one, column in zip(struct.fields, parsed, strict=True)}
    return [by_name[name] for name in keys]


def _is(operations: pa.StringArray, *names: str) -> pa.BooleanArray:
    return pc.is_in(operations, pa.array(names, pa.string()))
