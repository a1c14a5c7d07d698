"""What a consumer asks of a table: where to begin, which batches are new, and which lie between two positions.

Every answer is made from one loaded version of the table. What cannot be read as it was written is refused by name.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from pyiceberg.table import Table

from lakesink.read import reading_errors, steps
from lakesink.read.position import Position
from lakesink_catalog.read.earlier import Versions, past_under
from lakesink_catalog.read.history import keys_of_ledger
from lakesink_catalog.read.landed import Landed, newest_batch
from lakesink_catalog.read.past import Past, PastCommit
from lakesink_catalog.read.view import view_table
from lakesink_catalog.snapshots import head_of
from lakesink_protocol.errors import CatalogError, SettingsError
from lakesink_protocol.identity import SinkKey, SinkKind
from lakesink_protocol.ledger import LedgerEntry, mark_of

_OF_NO_SNAPSHOT = 0
"""The sequence number of a table before its first snapshot."""
_OWN_AND_BEFORE = 2
"""A position needs its batch, and the one before it."""


def past_of(table: Table, name: str, sink: steps.SinkBatches, position: Position | None) -> Past:
    """The commits under the branch's head, back to the one of the position; all of them without a position.

    Args:
        table: The table as loaded.
        name: Its identifier, for offsets and messages.
        sink: The batches that are read; names the branch.
        position: Where to stop. Sequence numbers grow from parent to child, so no older commit can be that of it.
    """
    head = head_of(table, sink.branch)
    if position is None or position.is_before_all:
        return past_under(table, name, head)
    parent = position.snapshot_id if position.is_read else None
    return past_under(table, name, head, lambda one: one.sequence_number <= position.sequence_number, after=parent)


def unread_batches(
    table: Table, name: str, sink: steps.SinkBatches, position: Position, *, changes: bool = False
) -> tuple[Past, steps.Unread]:
    """The batches after a position; none if the table was rolled back behind it and may come back.

    Raises:
        CatalogError: The table is another one, the position cannot be told, or the next snapshot took rows away.
    """
    past = past_of(table, name, sink, position)
    _check_followed(past, sink, position)
    place = steps.place_of(past, sink, position)
    match place:
        case steps.Found(index=index):
            found = steps.unread(past, sink, index, position, changes=changes)
            found = replace(found, lost_replay=_check_replays(table, past, sink, position))
            if found.stopped_by is not None and not found.batches:
                raise reading_errors.rows_taken_away(past, sink, found.stopped_by)
            return past, found
        case steps.Behind():
            read = table.snapshot_by_id(position.snapshot_id)
            if steps.is_passed(past, sink, position, mark_of(read.summary if read else None)):
                raise reading_errors.position_lost(past, sink, position, steps.Why.WRITTEN_OTHERWISE)
            return past, steps.Unread((), is_rolled_back=True)
        case steps.Lost(why=why):
            raise reading_errors.position_lost(past, sink, position, why)
        case _:
            assert_never(place)


def batches_between(
    table: Table, name: str, sink: steps.SinkBatches, start: Position, end: Position, *, is_first: bool = False
) -> tuple[Past, Sequence[PastCommit]]:
    """The batches after `start` and up to `end`: the same whenever they are asked for.

    Args:
        table: As it is now.
        name: Its identifier.
        sink: The batches that are read.
        start: Where the micro-batch begins.
        end: Where it ends.
        is_first: True if no micro-batch was completed: then the options say where it begins.

    Raises:
        CatalogError: As above, or READ_ROLLED_BACK if the table was rolled back behind `end`.
    """
    if start.is_at(end):
        return Past(name, start.table_uuid, ()), ()
    past = past_of(table, name, sink, start)
    for position in (start, end):
        _check_followed(past, sink, position)
    begins_behind = is_first and start.sequence_number >= end.sequence_number
    first, last = steps.place_of(past, sink, start), steps.place_of(past, sink, end)
    for position, place in ((start, first), (end, last)):
        if isinstance(place, steps.Lost):
            raise reading_errors.position_lost(past, sink, position, place.why, was_read=position is start)
    if not isinstance(first, steps.Found) or not isinstance(last, steps.Found) or last.index < first.index:
        lost = reading_errors.batches_rolled_back(past, start, end)
        raise reading_errors.begins_behind_plan(name, start, end) if begins_behind else lost
    _check_replays(table, past, sink, start)
    planned = replace(end, replays=tuple(one for one in end.replays if one not in start.replays))
    _, missing = _lost_replay(table, planned)
    went_back = [number for name, number, _ in start.replays if end.newest_replay(name) < number]
    if missing or went_back:
        code = "READ_ROLLED_BACK.planned_replay" if missing else "READ_ROLLED_BACK.replay"
        lost = CatalogError.of(code, replay=missing or went_back[0], table=past.table)
        raise reading_errors.begins_behind_plan(name, start, end) if begins_behind else lost
    found = steps.unread(past, sink, first.index, start)
    batches = [
        commit
        for index, commit in enumerate(past.commits)
        if (first.index <= index < last.index and sink.have(commit.mark))
        or (sink.have_replay(commit) and steps.is_read_at(commit, end) and not steps.is_read_at(commit, start))
    ]
    readable = {batch.snapshot_id for batch in found.batches}
    if found.stopped_by is not None and any(batch.snapshot_id not in readable for batch in batches):
        raise reading_errors.rows_taken_away(past, sink, found.stopped_by, found.batches)
    return past, batches


def commits_after(past: Past, sink: steps.SinkBatches, position: Position) -> Sequence[PastCommit]:
    """All commits after a position, up to the head; none if the position cannot be told."""
    place = steps.place_of(past, sink, position)
    return past.commits[place.index :] if isinstance(place, steps.Found) else ()


def newest_position(table: Table, name: str, sink: steps.SinkBatches) -> Position:
    """The position behind the newest batch that the table had, even if it was rolled back: it never goes back.

    Only while batches are written again after a rollback, it is an earlier one.
    """
    position = _newest_batch(table, name, sink)
    for key in keys_of_ledger(table):  # also of replays that expired
        if key.kind is SinkKind.TXN and key.branch == sink.branch and sink.have_replays(key.name):
            newest = newest_batch(table, key)
            if newest is not None and _own_entry(table, key):
                position = position.behind_replay(key.name, newest.batch_id, newest.end)
    return position


def _newest_batch(table: Table, name: str, sink: steps.SinkBatches) -> Position:
    uuid = str(table.metadata.table_uuid)
    found = newest_shown(table, name, sink, head_of(table, sink.branch))
    entry = _own_entry(table, SinkKey(sink.sink, sink.branch)) if sink.follows is steps.Follows.STREAM else None
    if entry is None or (found is not None and found.sequence_number >= entry.sequence_number):
        return found or sink.beginning(name, uuid)
    rolled_back = newest_shown(table, name, sink, entry.snapshot_id)
    if rolled_back is not None and rolled_back.snapshot_id == entry.snapshot_id:
        return rolled_back
    batch = entry.query_id, entry.batch_id, entry.fingerprint, "", entry.snapshot_id, entry.sequence_number
    return Position(name, uuid, sink.branch, sink.sink, *batch)


def newest_shown(table: Table, name: str, sink: steps.SinkBatches, snapshot_id: int | None) -> Position | None:
    """The position behind the newest batch that the metadata shows under a snapshot; None if it shows none."""
    commits: list[PastCommit] = []
    own = 0
    for commit in Versions(table.metadata, table.io).commits_under(snapshot_id):
        commits.append(commit)
        own += sink.have(commit.mark)
        if own == _OWN_AND_BEFORE:
            break
    past = Past(name, str(table.metadata.table_uuid), commits[::-1])
    start = sink.beginning(name, past.table_uuid)
    return steps.behind(past, start, [one for one in past.commits if sink.take(one)]) if own else None


def _own_entry(table: Table, key: SinkKey) -> LedgerEntry | None:
    """The ledger entry, unless it came from another table with the properties."""
    entry = view_table(table, key).entry
    return entry if entry is not None and entry.table_uuid == str(table.metadata.table_uuid) else None


def _lost_replay(table: Table, position: Position) -> tuple[str, int]:
    """Application and number of a replay before the position that the table was rolled back behind; 0 if it has all."""
    for application, number, _ in position.replays:
        key = SinkKey(application, position.branch, SinkKind.TXN)
        is_known = _own_entry(table, key) is not None  # else an operator removed the application
        if is_known and Landed(table, key).has("", number, _OF_NO_SNAPSHOT) is False:
            return application, number
    return "", 0


def _check_replays(table: Table, past: Past, sink: steps.SinkBatches, position: Position) -> int:
    """Refuse replays of letters that may have been read before a rollback; the number of a replay that is lost."""
    # a table of letters that was dropped has another application, whose replays cannot be compared
    application, lost = _lost_replay(table, position)
    for replay in filter(sink.have_replay, past.commits):
        is_of_others = lost > 0 and replay.application != application and not steps.is_read_at(replay, position)
        known_end = position.replay_end(replay.application, replay.batch_id)
        if is_of_others or not replay.known_mark.end.startswith(known_end):  # other letters have the number
            raise CatalogError.of(
                "READ_BATCH_CHANGED.replay",
                replay=lost if is_of_others else replay.batch_id,
                sink=sink.sink,
                table=past.table,
            )
    return lost


def _check_followed(past: Past, sink: steps.SinkBatches, position: Position) -> None:
    """Check that a position is of this table, branch and sink."""
    if past.table_uuid != position.table_uuid:
        raise CatalogError.of(
            "TABLE_REPLACED.to_read", table=past.table, table_uuid=past.table_uuid, known_uuid=position.table_uuid
        )
    own = sink.sink in (position.sink, steps.owner_of_changelog(position.sink))
    if not own or sink.branch != position.branch:
        raise SettingsError.of(
            "OPTION_INVALID.other_sink",
            sink=sink.sink,
            branch=sink.branch,
            table=past.table,
            read_sink=position.sink,
            read_branch=position.branch,
        )
