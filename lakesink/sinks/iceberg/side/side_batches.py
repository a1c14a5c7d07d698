"""The batches of a side table that are of one sink, and which of them the sink's own table never got.

The side table commits first. If the driver dies then, and its checkpoint is lost, no later run completes the batch: its
rows stay in the side table.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from lakesink.rows.side_rows import parse_side_end
from lakesink_catalog.read.history import keys_of_ledger
from lakesink_catalog.read.landed import Landed, newest_batch
from lakesink_catalog.read.past import by_sink, retained
from lakesink_catalog.read.view import view_table
from lakesink_catalog.words import counted
from lakesink_protocol.identity import SinkKey, SinkKind
from lakesink_protocol.ledger import LedgerEntry, Mark, mark_of, stated
from lakesink_protocol.measures import DEAD_LETTERS
from lakesink_protocol.quality import LETTERS_SINCE, may_have_letters

_MOST_LISTED = 3
_FIRST = 1
"""The sequence number of a table's first snapshot."""
KeyOf = Callable[[SinkKey, str, str], SinkKey]
"""The application that writes into a side table for a sink, a query and a table."""


@dataclass(frozen=True, slots=True)
class SideBatch:
    """One batch in a side table.

    Attributes:
        key: The application that wrote it.
        query_id: The query of the batch.
        after: See `Landed.has`.
        snapshot: None if only the ledger shows the batch.
    """

    key: SinkKey
    query_id: str
    batch_id: int
    after: int
    snapshot: Snapshot | None

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that added its rows."""
        return None if self.snapshot is None else self.snapshot.snapshot_id

    def is_after(self, newest: LedgerEntry | Mark) -> bool:
        """True if the query of this last batch may still commit this one."""
        return self.query_id == newest.query_id and self.batch_id > newest.batch_id


def side_batches(every: Iterable[SideBatch], key_of: KeyOf, owner: SinkKey, table_uuid: str) -> Iterator[SideBatch]:
    """Those of a sink and its table."""

    @cache
    def key(query_id: str) -> SinkKey | None:
        is_query = bool(query_id) is (owner.kind is SinkKind.STREAM)
        return key_of(owner, query_id, table_uuid) if is_query else None

    return (one for one in every if one.key == key(one.query_id))


def all_batches(side: Table) -> Iterator[SideBatch]:
    """The batches of all sinks, the newest first; then the last one of each query, from the ledger."""

    def batch(of: SinkKey, written: LedgerEntry | Mark, snapshot: Snapshot | None = None) -> Iterator[SideBatch]:
        said = parse_side_end(written.end)
        if said is not None:
            yield SideBatch(of, said[0], written.batch_id, said[1], snapshot)

    for snapshot in view_table(side, SinkKey(".".join(side.name()))).ancestry():
        mark = mark_of(snapshot.summary)
        if mark is not None:
            yield from batch(mark.key, mark, cast("Snapshot", snapshot))
    for known in keys_of_ledger(side):
        newest = newest_batch(side, known)
        if newest is not None:
            yield from batch(known, newest)


def left_behind(side: Table, key_of: KeyOf, owner: SinkKey, table: Table) -> list[SideBatch]:
    """The batches, as far as snapshots of the side table show them, that the table does not have; the newest first."""
    landed = Landed(table, owner)
    found = side_batches(all_batches(side), key_of, owner, str(table.metadata.table_uuid))
    return [one for one in found if one.snapshot and landed.has(one.query_id, one.batch_id, one.after) is False]


def left_by_forgotten(
    side: Table, key_of: KeyOf, table: Table, new: SinkKey
) -> Iterator[tuple[SinkKey, list[SideBatch]]]:
    """The same for each sink but a new one that was removed, or lost its ledger entry: no query completes a batch."""
    for owner in by_sink(retained(table).commits):
        if owner.branch == new.branch and owner != new and newest_batch(table, owner) is None:
            left = left_behind(side, key_of, owner, table)
            if left:
                yield owner, left


def states_letters(landed: Landed, letters: Table, query_id: str, batch_id: int) -> bool:
    """True unless a batch that landed says that it has no dead letters, or has them in another table.

    Letters of a batch that never came so far can stay behind when it is written again without any, or with others.
    """
    uuid, known = str(letters.metadata.table_uuid), landed.summaries(query_id, batch_id)
    said = [one for one in known if stated(one, DEAD_LETTERS.key)] if known else [landed.newest_summary(query_id)]
    return any(may_have_letters(str(one.get(LETTERS_SINCE, "")), batch_id, uuid) for one in said)


def in_snapshots(left: Sequence[SideBatch]) -> str:
    """The oldest of these batches, with their snapshots, for messages."""
    oldest = [f"batch {one.batch_id} in snapshot {one.snapshot_id}" for one in reversed(left)]
    more = len(oldest) - _MOST_LISTED
    return ", ".join(oldest[:_MOST_LISTED]) + (f" and {counted(more, 'other')}" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class WayBack:
    """What takes batches out of a side table; as text, the advice to an operator.

    Attributes:
        side: The table, as it was looked at.
        snapshot_id: The snapshot to roll it back to; None if it has nothing else and is to be dropped.
    """

    side: Table
    snapshot_id: int | None

    def __str__(self) -> str:
        name = ".".join(self.side.name())
        if self.snapshot_id is None:
            return f"Drop {name}: it has nothing else."
        return f"Roll {name} back to snapshot {self.snapshot_id}."


def way_back(side: Table, left: Sequence[SideBatch]) -> WayBack | None:
    """What takes these batches out of the side table; None if it would take others out too."""
    name, ids = ".".join(side.name()), {one.snapshot_id for one in left}
    missing = set(ids)
    for snapshot in view_table(side, SinkKey(name)).ancestry() if left else ():
        operation = None if snapshot.summary is None else snapshot.summary.operation
        if snapshot.snapshot_id not in ids and operation is not Operation.REPLACE:
            return None
        missing.discard(snapshot.snapshot_id)
        parent = snapshot.parent_snapshot_id
        if not missing and snapshot.sequence_number == _FIRST:
            return WayBack(side, None)
        if not missing and (parent is None or side.snapshot_by_id(parent) is None):
            return None  # expired, though it may have rows: PyIceberg then takes the parent's id out of its child
        if not missing:
            return WayBack(side, parent)
    return None
