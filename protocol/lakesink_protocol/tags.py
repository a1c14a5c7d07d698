"""Audit tags: decides whether a commit also sets a tag that stays at its snapshot, and the tag's name. Pure.

Every attempt decides from the loaded table, the batch, and the time of the new snapshot, so that every driver that
commits the batch decides the same. While a tag exists, its snapshot does not expire.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, assert_never

from lakesink_protocol.identity import SinkKey
from lakesink_protocol.ledger import SnapshotLike, TableView, mark_of
from lakesink_protocol.situation import Situation

DEFAULT_MAX_AGE_MS = 365 * 24 * 3_600_000
SHORTEST_PERIOD_MS = 1000


@dataclass(frozen=True, slots=True)
class EveryBatches:
    """A tag at every batch of a stream whose id is a multiple of `count`, which is at least 1."""

    count: int


@dataclass(frozen=True, slots=True)
class EveryPeriod:
    """A tag at the first batch of every period of `span_ms`, at least `SHORTEST_PERIOD_MS`.

    Periods are counted from 1970 in UTC, so days begin at midnight.
    """

    span_ms: int


TagEvery = EveryBatches | EveryPeriod


class TaggedSnapshot(SnapshotLike, Protocol):
    """The snapshot fields that tags need; PyIceberg's own class has them."""

    @property
    def timestamp_ms(self) -> int:
        """Time by the clock of the driver that committed, milliseconds since the epoch."""


Refs = Mapping[str, TaggedSnapshot | None]
"""Every branch and tag of a table by name, with a tag's snapshot; None for a branch, or if the snapshot is missing."""


def is_due(every: TagEvery, situation: Situation, refs: Refs, time_ms: int) -> bool:
    """Whether the batch's snapshot gets a tag; `time_ms` is the time of the new snapshot."""
    match every:
        case EveryBatches(count=count):
            return situation.batch.batch_id % count == 0
        case EveryPeriod(span_ms=span_ms):
            period = time_ms // span_ms
            # Of other tags, only the time is read, because there may be many.
            same = {name: one for name, one in refs.items() if one and one.timestamp_ms // span_ms == period}
            return all(_is_undone(situation.view, tagged) for tagged in audit_tags(situation.key, same).values())
        case _:
            assert_never(every)


def place_of_tag(situation: Situation, refs: Refs) -> tuple[str, int | None] | None:
    """The name for the batch's tag; None if each possible name belongs to another tag or branch.

    With it the tag's current snapshot, of the same batch before a rollback, or None. A batch id occurs twice if a
    stream continues from a new checkpoint; then the name contains the batch's fingerprint.
    """
    batch = situation.batch
    name = situation.key.audit_tag(batch.batch_id)
    for candidate in (name, f"{name}-{batch.fingerprint[:8]}"):
        if candidate not in refs:
            return candidate, None
        there = refs[candidate]
        if there and _batch_in(there, situation.key) == batch.batch_id and _is_undone(situation.view, there):
            return candidate, there.snapshot_id
    return None


def audit_tags(key: SinkKey, refs: Refs) -> dict[str, TaggedSnapshot]:
    """Tags with a name of the sink's audit tags, if they point at a snapshot of the sink."""
    return {
        name: snapshot
        for name, snapshot in refs.items()
        if name.startswith(key.audit_tag_prefix) and snapshot is not None and _batch_in(snapshot, key) is not None
    }


def _batch_in(snapshot: SnapshotLike, key: SinkKey) -> int | None:
    mark = mark_of(snapshot.summary)
    return mark.batch_id if mark is not None and mark.key == key else None


def _is_undone(view: TableView, snapshot: SnapshotLike) -> bool:
    """True if the ancestry has older snapshots but not this one. Ancestry that was cut above it proves nothing."""
    for step in view.ancestry():
        if step.snapshot_id == snapshot.snapshot_id:
            return False
        if (step.sequence_number or 0) < (snapshot.sequence_number or 0):
            return True
    return view.head is None
