"""What a consumer asks of a table: where to begin, which batches are new, and which lie between two positions.

Every answer is made from one loaded version of the table. What cannot be read as it was written is refused by name.
"""

from collections.abc import Sequence
from typing import assert_never

from pyiceberg.table import Table

from lakesink.read.past import newest_batch, past_of
from lakesink.read.position import Position
from lakesink.read.refusals import batches_rolled_back, position_lost, rows_taken_away, sink_changed, table_replaced
from lakesink.read.steps import (
    Behind,
    Follows,
    Found,
    Lost,
    Past,
    SinkBatches,
    Step,
    Unread,
    owner_of_changelog,
    place_of,
    unread,
)
from lakesink_catalog.read.view import view_table
from lakesink_protocol.identity import SinkKey


def unread_batches(
    table: Table, name: str, sink: SinkBatches, position: Position, *, changes: bool = False
) -> tuple[Past, Unread]:
    """The batches after a position; none if the table was rolled back behind it and may come back.

    Raises:
        CatalogError: The table is another one, the position cannot be told, or the next snapshot took rows away.
    """
    past = past_of(table, name, sink, position)
    _check_followed(past, sink, position)
    place = place_of(past, sink, position)
    match place:
        case Found(index=index):
            found = unread(past, sink, index, changes=changes)
            if found.stopped_by is not None and not found.batches:
                raise rows_taken_away(past, sink, found.stopped_by)
            return past, found
        case Behind():
            return past, Unread((), is_rolled_back=True)
        case Lost(why=why):
            raise position_lost(past, sink, position, why)
        case _:
            assert_never(place)


def batches_between(
    table: Table, name: str, sink: SinkBatches, start: Position, end: Position
) -> tuple[Past, Sequence[Step]]:
    """The batches after `start` and up to `end`: the same whenever they are asked for.

    Raises:
        CatalogError: As above, or READ_ROLLED_BACK if the table was rolled back behind `end`.
    """
    if start.is_at(end):
        return Past(name, start.table_uuid, ()), ()
    past = past_of(table, name, sink, start)
    for position in (start, end):
        _check_followed(past, sink, position)
    first, last = place_of(past, sink, start), place_of(past, sink, end)
    for position, place in ((start, first), (end, last)):
        if isinstance(place, Lost):
            raise position_lost(past, sink, position, place.why)
    if not isinstance(first, Found) or not isinstance(last, Found) or last.index < first.index:
        raise batches_rolled_back(past, start, end)
    found = unread(past, sink, first.index)
    batches = [step for step in past.steps[first.index : last.index] if sink.have(step.mark)]
    if len(batches) > len(found.batches) and found.stopped_by is not None:
        raise rows_taken_away(past, sink, found.stopped_by, found.batches)
    return past, batches


def steps_after(past: Past, sink: SinkBatches, position: Position) -> Sequence[Step]:
    """All snapshots after a position, up to the head; none if the position cannot be told."""
    place = place_of(past, sink, position)
    return past.steps[place.index :] if isinstance(place, Found) else ()


def newest_position(table: Table, name: str, sink: SinkBatches) -> Position:
    """The position behind the newest batch that the table had, even if it was rolled back: it never goes back.

    Only while batches are written again after a rollback, it is an earlier one.
    """
    found = newest_batch(table, name, sink)
    entry = view_table(table, SinkKey(sink.sink, sink.branch)).entry if sink.follows is Follows.STREAM else None
    if entry is None or (found is not None and found.sequence_number >= entry.sequence_number):
        return found or Past(name, str(table.metadata.table_uuid), ()).beginning(sink)
    rolled_back = newest_batch(table, name, sink, entry.snapshot_id)
    if rolled_back is not None and rolled_back.snapshot_id == entry.snapshot_id:
        return rolled_back
    batch = entry.query_id, entry.batch_id, entry.fingerprint, "", entry.snapshot_id, entry.sequence_number
    return Position(name, str(table.metadata.table_uuid), sink.branch, sink.sink, *batch)


def _check_followed(past: Past, sink: SinkBatches, position: Position) -> None:
    """Check that a position is of this table, branch and sink."""
    if past.table_uuid != position.table_uuid:
        raise table_replaced(past, position)
    own = sink.sink in (position.sink, owner_of_changelog(position.sink))
    if not own or sink.branch != position.branch:
        raise sink_changed(past, sink, position)
