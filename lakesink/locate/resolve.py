"""Decides what the changes of a batch do to the live rows of their keys: rows to remove, late changes, counts. Pure."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.locate.key_columns import KeyColumns
from lakesink.locate.keys_files import OP
from lakesink.locate.newest import CHANGE
from lakesink.locate.scan import FILE, POSITION
from lakesink_protocol.row_changes import ChangeCounts, Operation

_NEW, _AGE = "new_", "age"


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
    changes = changes.select([CHANGE, OP, *columns.sequence_names])
    rows = _with_changes(live, changes, columns)
    late = pc.unique(rows[CHANGE].filter(_holds(rows, columns)))
    is_late = pc.is_in(rows[CHANGE], late)
    stays = _newest_of_each(rows.filter(is_late), ages, columns)
    removed = pa.concat_tables([rows.filter(pc.invert(is_late)), stays]).select([FILE, POSITION])
    return Resolution(removed, late, _counts(changes, rows, late, removed.num_rows))


def _with_changes(live: pa.Table, changes: pa.Table, columns: KeyColumns) -> pa.Table:
    """The live rows, each with the operation and the sequence of its change."""
    places = pc.index_in(live[CHANGE], changes[CHANGE])
    assert not places.null_count
    own = changes.take(places)
    rows = live.append_column(OP, own[OP])
    for name in columns.sequence_names:
        rows = rows.append_column(_NEW + name, own[name])
    return rows


def _holds(rows: pa.Table, columns: KeyColumns) -> pa.ChunkedArray:
    """True for a live row that its change does not replace: of a higher sequence, or of an equal one as a snapshot row.

    A NULL sequence is lower than all others. Columns are compared from the last to the first, as in a text.
    """
    if not columns.sequences:
        return pa.chunked_array([pa.repeat(pa.scalar(value=False), rows.num_rows)])
    holds = pc.equal(rows[OP], int(Operation.SNAPSHOT))
    for name in reversed(columns.sequence_names):
        live, new = rows[name], rows[_NEW + name]
        higher = pc.fill_null(pc.greater(live, new), fill_value=False)
        equal = pc.fill_null(pc.equal(live, new), fill_value=False)
        holds = pc.or_(higher, pc.and_(equal, holds))
    return holds


def _newest_of_each(rows: pa.Table, ages: pa.Array, columns: KeyColumns) -> pa.Table:
    """The rows to remove where a live row stays: all but the one of the highest sequence, then of the newest file."""
    if not rows.num_rows:
        return rows
    aged = rows.append_column(_AGE, pc.take(ages, rows[FILE]))
    order = [(CHANGE, "ascending"), *((name, "descending") for name in columns.sequence_names)]
    order += [(_AGE, "descending"), (FILE, "descending"), (POSITION, "descending")]
    ordered = aged.sort_by(order).drop_columns(_AGE)
    numbers = ordered[CHANGE].combine_chunks()
    is_first = pa.concat_arrays([pa.array([True]), pc.not_equal(numbers[1:], numbers[:-1])])
    return ordered.filter(pc.invert(is_first))


def _counts(changes: pa.Table, rows: pa.Table, late: pa.Array, removed: int) -> ChangeCounts:
    is_delete = pc.equal(changes[OP], int(Operation.DELETE))
    is_late = pc.is_in(changes[CHANGE], late)
    finds = pc.and_(pc.is_in(changes[CHANGE], pc.unique(rows[CHANGE])), pc.invert(is_late))
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
