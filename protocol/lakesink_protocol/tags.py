"""Audit tags: when a commit also sets a tag that stays at its snapshot, and under which name. Pure.

Decided in every attempt from the table as loaded, the batch, and the time of the snapshot that is about to be sent, so
that whoever commits the batch decides the same. A tag keeps its snapshot, and so the table as of it, from expiry.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, assert_never

from lakesink_protocol.identity import SinkKey
from lakesink_protocol.ledger import SnapshotLike, TableView, mark_of
from lakesink_protocol.situation import Situation

DEFAULT_MAX_AGE_MS = 365 * 24 * 3_600_000
SHORTEST_PERIOD_MS = 1000


@dataclass(frozen=True, slots=True)
class EveryBatches:
    """A tag at every batch of a stream whose id is a multiple.

    Attributes:
        count: Of what, at least 1.
    """

    count: int


@dataclass(frozen=True, slots=True)
class EveryPeriod:
    """A tag at the first batch of every period; periods are counted from 1970 in UTC, so days begin at midnight.

    Attributes:
        span_ms: Length of a period, at least `SHORTEST_PERIOD_MS`.
    """

    span_ms: int


TagEvery = EveryBatches | EveryPeriod


class TaggedSnapshot(SnapshotLike, Protocol):
    """What a tag points at; PyIceberg's own class fits."""

    @property
    def timestamp_ms(self) -> int:
        """When it was made, by the clock of who made it, milliseconds since the epoch."""


Refs = Mapping[str, TaggedSnapshot | None]
"""Every branch and tag of a table by name, with the snapshot if it is a tag at one that is there."""


@dataclass(frozen=True, slots=True)
class TagPlace:
    """Where a tag can be set.

    Attributes:
        name: The tag.
        replaces: Snapshot that it shows now: the same batch, before a rollback undid it. None if there is no such tag.
    """

    name: str
    replaces: int | None


def is_due(every: TagEvery, situation: Situation, refs: Refs, time_ms: int) -> bool:
    """Whether the batch's snapshot is to be tagged.

    Args:
        every: The rhythm.
        situation: The batch before the table.
        refs: Of that table.
        time_ms: Time of the snapshot to be.
    """
    match every:
        case EveryBatches(count=count):
            return situation.batch.batch_id % count == 0
        case EveryPeriod(span_ms=span_ms):
            return all(
                _is_undone(situation.view, tagged) for tagged in _tagged_in(situation.key, refs, span_ms, time_ms)
            )
        case _:
            assert_never(every)


def place_of_tag(situation: Situation, refs: Refs) -> TagPlace | None:
    """Where to set the batch's tag, so that no tag or branch which shows something else is touched.

    A batch id comes twice if a stream goes on from a new checkpoint; then the batch's fingerprint is in the name.

    Args:
        situation: The batch before the table.
        refs: Of that table.

    Returns:
        None if every name is taken.
    """
    batch = situation.batch
    name = situation.key.audit_tag(batch.batch_id)
    for candidate in (name, f"{name}-{batch.fingerprint[:8]}"):
        if candidate not in refs:
            return TagPlace(candidate, None)
        there = refs[candidate]
        if there is not None and _is_undone_batch(situation, there):
            return TagPlace(candidate, there.snapshot_id)
    return None


def audit_tags(key: SinkKey, refs: Refs) -> dict[str, TaggedSnapshot]:
    """The sink's audit tags: those of its names that point at snapshots of it."""
    return {
        name: snapshot
        for name, snapshot in refs.items()
        if name.startswith(key.audit_tag_prefix) and snapshot is not None and _batch_in(snapshot, key) is not None
    }


def _tagged_in(key: SinkKey, refs: Refs, span_ms: int, time_ms: int) -> Iterable[TaggedSnapshot]:
    """The sink's tagged batches of one period; of all others only the time is looked at, for there may be many."""
    period = time_ms // span_ms
    same = {name: tagged for name, tagged in refs.items() if tagged and tagged.timestamp_ms // span_ms == period}
    return audit_tags(key, same).values()


def _is_undone_batch(situation: Situation, snapshot: TaggedSnapshot) -> bool:
    same = _batch_in(snapshot, situation.key) == situation.batch.batch_id
    return same and _is_undone(situation.view, snapshot)


def _batch_in(snapshot: SnapshotLike, key: SinkKey) -> int | None:
    mark = mark_of(snapshot.summary)
    return mark.batch_id if mark is not None and mark.key == key else None


def _is_undone(view: TableView, snapshot: SnapshotLike) -> bool:
    """The walk from the head passes the snapshot's place in time without it; a walk cut above that proves nothing."""
    for step in view.walk():
        if step.snapshot_id == snapshot.snapshot_id:
            return False
        if (step.sequence_number or 0) < (snapshot.sequence_number or 0):
            return True
    return view.head is None
