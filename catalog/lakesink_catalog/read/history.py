"""The history of a table: every retained batch, and the state of each sink. Reads metadata, writes nothing.

Batch marks are in snapshot summaries and disappear when snapshots expire; the ledger property stays. So `history` shows
the retained batches, and `sinks` also shows a last batch whose snapshot has expired.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakesink_catalog.read.view import view_table
from lakesink_protocol.decoded import MALFORMED_ROWS, UNKNOWN_KEYS, UNKNOWN_NAMES
from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import LEDGER_PREFIX, MAIN_BRANCH, NAME_PATTERN, NO_BATCH, Batch, SinkKey, SinkKind
from lakesink_protocol.ledger import FORGOTTEN, LedgerEntry, Mark, TableView, mark_of, stated
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Refuse, Skip, decide

_LAST_MS = 253_402_300_799_000  # the end of the last year in Python's calendar


@dataclass(frozen=True, slots=True)
class Record:
    """One batch in one snapshot.

    Attributes:
        sink: Sink id, or application id of an `append`.
        kind: ``stream`` or ``txn``.
        batch_id: Batch id, or version.
        bytes: Size of the added data files in bytes.
        offsets: The source's end offsets as JSON; empty if unknown or too long.
        committed_at: UTC time by the clock of the driver that committed.
        outcome: ``committed``, ``recovered`` (prepared by an earlier run), or ``accepted`` (by an operator).
        accepted: The accept as the user wrote it; empty if none.
        missing_inputs: Number of missing input files that an operator accepted.
        in_branch: True if the batch is under the branch's head, False if it was rolled back, None if expiry removed the
            proof.
        malformed_rows: Rows of NULLs that replace documents that could not be decoded.
        unknown_keys: Keys of documents for which the table had no column.
        unknown_names: Names of such keys as a JSON list; empty if there were none.
    """

    sink: str
    branch: str
    kind: str
    batch_id: int
    snapshot_id: int
    sequence_number: int
    rows: int
    files: int
    bytes: int
    offsets: str
    committed_at: datetime
    outcome: str
    accepted: str
    missing_inputs: int
    in_branch: bool | None
    malformed_rows: int = 0
    unknown_keys: int = 0
    unknown_names: str = ""


@dataclass(frozen=True, slots=True)
class SinkState:
    """The state of one sink; `Record` explains the fields of the same names.

    Attributes:
        batch_id: Last batch, or version, by the ledger; by the newest mark if the ledger cannot be read.
        snapshot_id: The sink's newest snapshot by the same source.
        offsets: The source's offsets at the end of the last batch, as JSON; empty if unknown.
        committed_at: UTC time of that snapshot; None if it has expired.
        since: UTC time of the oldest retained batch; None if none is retained.
        batches: Number of retained batches in the branch; the following counts are sums over them.
        trouble: Reason for which the next batch would be refused; None if there is none.
        unverifiable: True if expiry removed the proof that the last batch is in the branch; the ledger is trusted.
        malformed_rows: Part of `rows`.
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
    malformed_rows: int = 0
    unknown_keys: int = 0


def history(table: Table, *, sink: str | None = None, branch: str | None = None) -> list[Record]:
    """Every batch in the table's snapshots, newest last; `sink` is a sink id or an application id."""
    ancestries = _Ancestries(table)
    records = [
        _record(mark, snapshot, ancestries)
        for mark, snapshot in _marked(table)
        if sink in (None, mark.key.name) and branch in (None, mark.key.branch)
    ]
    return sorted(records, key=lambda record: (record.sequence_number, record.snapshot_id))


def sinks(table: Table) -> list[SinkState]:
    """Every sink with a ledger entry or a retained mark, by name, except sinks that were removed.

    A mark that expiry cut off from its branch, such as a mark that only an audit tag retains, does not prove a lost
    ledger. A verdict does not see it either, unless the ledger tag retains it.
    """
    retained: dict[SinkKey, list[Record]] = defaultdict(list)
    for record in history(table):
        retained[SinkKey(record.sink, record.branch, SinkKind(record.kind))].append(record)
    forgotten = {said.get(FORGOTTEN) for said in (snapshot.summary for snapshot in table.metadata.snapshots) if said}
    marked = {key for key, records in retained.items() if any(record.in_branch is not None for record in records)}
    marked |= {key for key in retained.keys() - marked if _is_marked(table, key)}
    keys = {key for key in marked if key.ledger_property not in forgotten} | set(_keys_of_ledger(table))
    return [_state(table, key, retained.get(key, [])) for key in sorted(keys, key=_order)]


def _is_marked(table: Table, key: SinkKey) -> bool:
    """True if the sink has an own mark, as the rule for a lost ledger requires."""
    view = view_table(table, key)
    return Situation(view, key, NO_BATCH, view.table_uuid).has_own_mark


class _Ancestries:
    """The snapshots under the head of each branch, found once per branch."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._found: dict[str, dict[int, int]] = {}

    def contains(self, branch: str, snapshot: Snapshot) -> bool | None:
        ancestry = self._sequence_numbers(branch)
        if snapshot.snapshot_id in ancestry:
            return True
        lowest = min(ancestry.values(), default=0)
        return False if (snapshot.sequence_number or 0) >= lowest or lowest <= 1 else None

    def _sequence_numbers(self, branch: str) -> dict[int, int]:
        if branch not in self._found:
            view = view_table(self._table, SinkKey("history", branch))
            self._found[branch] = {step.snapshot_id: step.sequence_number or 0 for step in view.ancestry()}
        return self._found[branch]


def _marked(table: Table) -> Iterator[tuple[Mark, Snapshot]]:
    for snapshot in table.metadata.snapshots:
        mark = mark_of(snapshot.summary)
        if mark is not None:
            yield mark, snapshot


def _record(mark: Mark, snapshot: Snapshot, ancestries: _Ancestries) -> Record:
    return Record(
        sink=mark.key.name,
        branch=mark.key.branch,
        kind=mark.key.kind.value,
        batch_id=mark.batch_id,
        snapshot_id=snapshot.snapshot_id,
        sequence_number=snapshot.sequence_number or 0,
        rows=_count(snapshot.summary, "added-records"),
        files=_count(snapshot.summary, "added-data-files"),
        bytes=_count(snapshot.summary, "added-files-size"),
        offsets=mark.offsets,
        committed_at=time_of(snapshot.timestamp_ms),
        outcome=mark.outcome,
        accepted=mark.accepted,
        missing_inputs=mark.missing_inputs,
        in_branch=ancestries.contains(mark.key.branch, snapshot),
        malformed_rows=_count(snapshot.summary, MALFORMED_ROWS),
        unknown_keys=_count(snapshot.summary, UNKNOWN_KEYS),
        unknown_names=str(snapshot.summary[UNKNOWN_NAMES] or "") if snapshot.summary else "",
    )


def _keys_of_ledger(table: Table) -> Iterator[SinkKey]:
    for name in table.metadata.properties:
        kind, _, rest = name.removeprefix(LEDGER_PREFIX).partition(".")
        sink, at, branch = rest.partition("@")
        known = kind in {member.value for member in SinkKind}
        if name.startswith(LEDGER_PREFIX) and known and NAME_PATTERN.fullmatch(sink) and bool(at) == bool(branch):
            yield SinkKey(sink, branch or MAIN_BRANCH, SinkKind(kind))


def _state(table: Table, key: SinkKey, records: list[Record]) -> SinkState:
    view = view_table(table, key)
    trouble, unverifiable = _standing(view, key)
    counted = [record for record in records if record.in_branch is not False]
    entry, newest = view.entry, counted[-1] if counted else None
    snapshot_id = entry.snapshot_id if entry else newest.snapshot_id if newest else None
    snapshot = view.snapshots.get(snapshot_id) if snapshot_id is not None else None
    return SinkState(
        sink=key.name,
        branch=key.branch,
        kind=key.kind.value,
        batch_id=entry.batch_id if entry else newest.batch_id if newest else None,
        snapshot_id=snapshot_id,
        offsets=entry.offsets if entry else newest.offsets if newest else "",
        committed_at=time_of(snapshot.timestamp_ms) if isinstance(snapshot, Snapshot) else None,
        since=counted[0].committed_at if counted else None,
        batches=len(counted),
        rows=sum(record.rows for record in counted),
        files=sum(record.files for record in counted),
        bytes=sum(record.bytes for record in counted),
        trouble=trouble,
        unverifiable=unverifiable,
        malformed_rows=sum(record.malformed_rows for record in counted),
        unknown_keys=sum(record.unknown_keys for record in counted),
    )


def _standing(view: TableView, key: SinkKey) -> tuple[Reason | None, bool]:
    """Judges the last batch as if it came again: the sink is fine if the verdict is to skip it."""
    if view.entry is None:
        return (Reason.LEDGER_DAMAGED if view.entry_damage else Reason.LEDGER_LOST), False
    verdict = decide(Situation(view, key, _last_batch(view.entry), view.table_uuid))
    match verdict:
        case Skip(unverifiable=unverifiable):
            return None, unverifiable
        case Refuse(reason=reason):
            return reason, False
        case _:  # it would be written again, so it is not in the branch
            return Reason.ROLLED_BACK, False


def _last_batch(entry: LedgerEntry) -> Batch:
    return Batch(entry.batch_id, entry.query_id, entry.fingerprint, start=None, end=entry.end)


def _order(key: SinkKey) -> tuple[str, str, str]:
    return key.name, key.branch, key.kind.value


def _count(summary: Any, name: str) -> int:
    return stated(summary, name) or 0


def time_of(timestamp_ms: int) -> datetime:
    """A snapshot's time in UTC, limited to the range of Python's calendar."""
    return datetime.fromtimestamp(min(max(timestamp_ms, 0), _LAST_MS) / 1000, UTC)
