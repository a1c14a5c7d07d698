"""Decides what the changes of a batch do to the live rows of their keys: rows to remove, late changes, counts. Pure."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.keys.change_order import starts
from lakesink.keys.key_columns import KeyColumns
from lakesink.keys.keys_file import OP
from lakesink.keys.newest import CHANGE, places_of
from lakesink.keys.scan import FILE, POSITION
from lakesink.parquet.positions import mask_of
from lakesink.rows.scalars import FALSE
from lakesink_protocol.row_changes import ChangeCounts, Operation

_AGE = "age"


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the changes do on one head.

    Attributes:
        removed: `FILE` and `POSITION` of the rows to remove.
        late: Numbers of the changes without effect, because a live row of their key has a higher sequence.
        counts: Without superseded changes.
    """

    removed: pa.Table
    late: pa.Array
    counts: ChangeCounts


def resolve(changes: pa.Table, live: pa.Table, ages: pa.Array, columns: KeyColumns) -> Resolution:
    """Compare each change with the live rows of its key.

    Args:
        changes: At most one of each key, see `Newest`.
        live: The live rows with such a key, see `find_rows`.
        ages: The data sequence number of each file.
        columns: The key and sequence columns.
    """
    places = pa.chunked_array([places_of(changes[CHANGE]).take(part) for part in live[CHANGE].chunks], pa.int32())
    assert not places.null_count
    late_places = places.filter(_holds(live, changes, places, columns))
    is_late, finds = (mask_of(found.combine_chunks(), changes.num_rows) for found in (late_places, places))
    has_late = is_late.take(places)  # by live row
    removed = live.select([FILE, POSITION])
    if pc.any(has_late).as_py():
        stays = _newest_of_each(live.filter(has_late), ages, columns).select([FILE, POSITION])
        removed = pa.concat_tables([removed.filter(pc.invert(has_late)), stays])
    late = changes[CHANGE].filter(is_late).combine_chunks()
    return Resolution(removed, late, _counts(changes[OP], finds, is_late, removed.num_rows))


def _holds(live: pa.Table, changes: pa.Table, places: pa.ChunkedArray, columns: KeyColumns) -> pa.ChunkedArray:
    """True for a live row of a higher sequence than its change, or a snapshot row of an equal one; NULL is lowest."""
    # columns are compared from the last to the first, as in a text
    if not columns.sequences:
        return pa.chunked_array([pa.repeat(FALSE, live.num_rows)])
    holds = pc.equal(changes[OP].take(places), int(Operation.SNAPSHOT))
    for name in reversed(columns.sequence_names):
        old, new = live[name], changes[name].take(places)
        higher = pc.fill_null(pc.greater(old, new), fill_value=False)
        equal = pc.fill_null(pc.equal(old, new), fill_value=False)
        holds = pc.or_(higher, pc.and_(equal, holds))
    return holds


def _newest_of_each(rows: pa.Table, ages: pa.Array, columns: KeyColumns) -> pa.Table:
    """The rows to remove where a live row stays: all but the one of the highest sequence, then of the newest file."""
    aged = rows.append_column(_AGE, pc.take(ages, rows[FILE]))
    order = [(CHANGE, "ascending"), *((name, "descending") for name in columns.sequence_names)]
    order += [(_AGE, "descending"), (FILE, "descending"), (POSITION, "descending")]
    ordered = aged.sort_by(order).drop_columns(_AGE)
    return ordered.filter(pc.invert(starts(ordered, CHANGE)))


def _counts(
    operations: pa.ChunkedArray, finds: pa.BooleanArray, is_late: pa.BooleanArray, removed: int
) -> ChangeCounts:
    """Count the changes by their operations, by whether a live row has their key, and by whether they are late."""
    is_delete = pc.equal(operations, int(Operation.DELETE))
    finds = pc.and_not(finds, is_late)
    is_upsert = pc.invert(is_delete)
    upserts, deletes = _true(is_upsert), _true(is_delete)
    updated, deleted = _true(pc.and_(finds, is_upsert)), _true(pc.and_(finds, is_delete))
    late_upserts, late_deletes = _true(pc.and_(is_late, is_upsert)), _true(pc.and_(is_late, is_delete))
    return ChangeCounts(
        upserts=upserts,
        deletes=deletes,
        inserted=upserts - updated - late_upserts,
        updated=updated,
        deleted=deleted,
        late_upserts=late_upserts,
        late_deletes=late_deletes,
        absent=deletes - deleted - late_deletes,
        healed=removed - updated - deleted,
    )


def _true(values: pa.ChunkedArray) -> int:
    return int(pc.sum(values).as_py() or 0)
