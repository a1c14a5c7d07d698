"""The state of each sink of a table, also of one whose last batch has expired, and when its silence is unusual."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import cast

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakesink_catalog.read.past import PastCommit, Retained, by_sink, retained, time_of
from lakesink_catalog.read.view import view_table
from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import LEDGER_PREFIX, MAIN_BRANCH, NAME_PATTERN, Batch, SinkKey, SinkKind
from lakesink_protocol.ledger import TableView
from lakesink_protocol.measures import Tally
from lakesink_protocol.row_changes import ChangeCounts, sum_of
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Refuse, Skip, decide

RECENT = 100
"""Gaps that count: a stream whose pace changed is judged by its new pace."""
FEWEST = 5
PATIENCE = 3
SHORTEST_SILENCE = timedelta(minutes=1)
SHORTEST_SILENCE_OF_JOBS = timedelta(days=1)
"""A batch job may run often in one hour and not at all in the next."""


@dataclass(frozen=True, slots=True)
class SinkState:
    """The state of one sink; `lakesink.Record` explains the fields of the same names.

    Attributes:
        batch_id: Last batch, or version, by the ledger; by the newest mark if the ledger cannot be read.
        snapshot_id: The sink's newest snapshot by the same source.
        offsets: The source's offsets at the end of the last batch, as JSON; empty if unknown.
        committed_at: UTC time of that snapshot; None if it has expired.
        since: UTC time of the oldest retained batch; None if none is retained.
        batches: Number of retained batches in the branch; the following counts are sums over them.
        trouble: Reason for which the next batch would be refused; None if there is none.
        unverifiable: True if expiry removed the proof that the last batch is in the branch; the ledger is trusted.
        silence_limit: After this time without a batch, the sink is silent for longer than it usually is; None if too
            few batches are retained.
        changes: The sum over the batches that changed rows by key; None if none did.
    """

    sink: str
    branch: str
    kind: str
    batch_id: int | None
    snapshot_id: int | None
    offsets: str
    committed_at: datetime | None
    since: datetime | None
    batches: int
    rows: int
    files: int
    bytes: int
    trouble: Reason | None
    unverifiable: bool
    counts: Tally
    silence_limit: timedelta | None = None
    changes: ChangeCounts | None = None


def sinks(table: Table, known: Retained | None = None) -> list[SinkState]:
    """Every sink with a ledger entry or a retained mark, by name, except sinks that were removed.

    A mark that expiry cut off from its branch, such as a mark that only an audit tag retains, does not prove a lost
    ledger. A verdict does not see it either, unless the ledger tag retains it. `known` saves reading `retained` again.
    """
    known = known or retained(table)
    by_key = by_sink(known.commits)
    marked = {key for key, found in by_key.items() if any(one.in_branch is not None for one in found)}
    # As the rule for a lost ledger requires.
    marked |= {key for key in by_key.keys() - marked if Situation(view_table(table, key), key).has_own_mark}
    keys = {key for key in marked if key.ledger_property not in known.forgotten} | set(keys_of_ledger(table))
    return [
        _state(table, key, by_key.get(key, ()))
        for key in sorted(keys, key=lambda key: (key.name, key.branch, key.kind.value))
    ]


def keys_of_ledger(table: Table) -> Iterator[SinkKey]:
    """The sinks that have a ledger entry."""
    for name in table.metadata.properties:
        kind, _, rest = name.removeprefix(LEDGER_PREFIX).partition(".")
        sink, at, branch = rest.partition("@")
        known = kind in {member.value for member in SinkKind}
        if name.startswith(LEDGER_PREFIX) and known and NAME_PATTERN.fullmatch(sink) and bool(at) == bool(branch):
            yield SinkKey(sink, branch or MAIN_BRANCH, SinkKind(kind))


def _state(table: Table, key: SinkKey, batches: Sequence[PastCommit]) -> SinkState:
    view = view_table(table, key)
    trouble, unverifiable = _standing(view, key)
    counted = [batch for batch in batches if batch.is_counted]
    entry, newest = view.entry, counted[-1] if counted else None
    snapshot_id = entry.snapshot_id if entry else newest.snapshot_id if newest else None
    snapshot = cast("Snapshot | None", view.snapshots.get(snapshot_id)) if snapshot_id is not None else None
    return SinkState(
        sink=key.name,
        branch=key.branch,
        kind=key.kind.value,
        batch_id=entry.batch_id if entry else newest.batch_id if newest else None,
        snapshot_id=snapshot_id,
        offsets=entry.offsets if entry else newest.known_mark.offsets if newest else "",
        committed_at=None if snapshot is None else time_of(snapshot.timestamp_ms),
        since=counted[0].committed_at if counted else None,
        batches=len(counted),
        rows=sum(batch.rows for batch in counted),
        files=sum(batch.files for batch in counted),
        bytes=sum(batch.added.bytes or 0 for batch in counted),
        trouble=trouble,
        unverifiable=unverifiable,
        counts=Tally.total(batch.counts for batch in counted),
        silence_limit=silence_limit(
            (batch.committed_at for batch in counted),
            SHORTEST_SILENCE_OF_JOBS if key.kind is SinkKind.TXN else SHORTEST_SILENCE,
        ),
        changes=total_changes(counted),
    )


def total_changes(batches: Iterable[PastCommit]) -> ChangeCounts | None:
    """What became of the changes of these batches; None if all of them appended."""
    found = [batch.changes for batch in batches if batch.changes is not None]
    return sum_of(found) if found else None


def _standing(view: TableView, key: SinkKey) -> tuple[Reason | None, bool]:
    """Judges the last batch as if it came again: the sink is fine if the verdict is to skip it."""
    if view.entry is None:
        return (Reason.LEDGER_DAMAGED if view.entry_damage else Reason.LEDGER_LOST), False
    entry = view.entry
    last = Batch(entry.batch_id, entry.query_id, entry.fingerprint, start=None, end=entry.end)
    verdict = decide(Situation(view, key, last))
    match verdict:
        case Skip(unverifiable=unverifiable):
            return None, unverifiable
        case Refuse(reason=reason):
            return reason, False
        case _:  # it would be written again, so it is not in the branch
            return Reason.ROLLED_BACK, False


def silence_limit(committed: Iterable[datetime], shortest: timedelta = SHORTEST_SILENCE) -> timedelta | None:
    """The longest silence that is not unusual for a sink; None if too few batches show its pace.

    It is three times the second longest of the recent gaps between batches, and at least `shortest`. The longest gap
    does not count: it may be one outage. A median would miss the long gaps between the runs of a scheduled job.
    """
    gaps = [later - earlier for earlier, later in pairwise(sorted(committed))][-RECENT:]
    if len(gaps) < FEWEST:
        return None
    return max(PATIENCE * sorted(gaps)[-2], shortest)
