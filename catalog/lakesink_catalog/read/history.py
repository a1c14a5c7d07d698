"""The history of a table: every retained batch, and the state of each sink. Reads metadata, writes nothing.

Batch marks are in snapshot summaries and disappear when snapshots expire; the ledger property stays. So `history` shows
the retained batches, and `sinks` also shows a last batch whose snapshot has expired.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import cast

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakesink_catalog.read.gaps import SHORTEST_SILENCE, SHORTEST_SILENCE_OF_JOBS, silence_limit
from lakesink_catalog.read.past import PastCommit, Retained, by_sink, retained, text_in, time_of
from lakesink_catalog.read.view import view_table
from lakesink_protocol.change import LONGEST_WORDS, SCHEMA_CHANGE
from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import LEDGER_PREFIX, MAIN_BRANCH, NAME_PATTERN, NO_BATCH, Batch, SinkKey, SinkKind
from lakesink_protocol.ledger import LedgerEntry, TableView
from lakesink_protocol.quality import RESCUED, UNKNOWN_NAMES, rescued_in, unmet_in
from lakesink_protocol.redact import shown
from lakesink_protocol.row_changes import CHANGELOG_TABLE, ChangeCounts, sum_of
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Refuse, Skip, decide


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
        unknown_keys: Keys of documents for which the table had no column.
        unknown_names: Names of such keys as a JSON list; empty if there were none.
        schema_change: How the commit changed the table's schema, in words; empty if it did not.
        unmet_rows: Rows that did not meet at least one expectation of the query.
        unmet: Of every expectation, the number of rows that did not meet it.
        dead_letters: Rows of the batch that are in its table of dead letters, and not part of `rows`.
        rescued_rows: Rows with a text in the rescue column.
        rescued: Of these rows by reason; see `lakesink_protocol.quality.Quality`.
        changes: What became of the batch's changes by key; None of a batch that appended.
        changelog: The table that has all of them as rows; empty if there is none.
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
    unknown_keys: int = 0
    unknown_names: str = ""
    schema_change: str = ""
    unmet_rows: int = 0
    unmet: Mapping[str, int] = field(default_factory=dict)
    dead_letters: int = 0
    rescued_rows: int = 0
    rescued: Mapping[str, int] = field(default_factory=dict)
    changes: ChangeCounts | None = None
    changelog: str = ""


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
    unknown_keys: int = 0
    unmet_rows: int = 0
    dead_letters: int = 0
    rescued_rows: int = 0
    silence_limit: timedelta | None = None
    changes: ChangeCounts | None = None


def history(table: Table, *, sink: str | None = None, branch: str | None = None) -> list[Record]:
    """Every batch in the table's snapshots, newest last; `sink` is a sink id or an application id."""
    return [record_of(batch) for batch in retained(table).batches(sink, branch)]


def record_of(batch: PastCommit) -> Record:
    """All that is known of a batch."""
    mark, summary = batch.known_mark, batch.summary
    return Record(
        sink=mark.key.name,
        branch=mark.key.branch,
        kind=mark.key.kind.value,
        batch_id=mark.batch_id,
        snapshot_id=batch.snapshot_id,
        sequence_number=batch.sequence_number,
        rows=batch.rows,
        files=batch.files,
        bytes=batch.added.bytes or 0,
        offsets=mark.offsets,
        committed_at=batch.committed_at,
        outcome=mark.outcome,
        accepted=mark.accepted,
        missing_inputs=mark.missing_inputs,
        in_branch=batch.in_branch,
        unknown_keys=batch.unknown_keys,
        unknown_names=text_in(summary, UNKNOWN_NAMES),
        schema_change=shown(text_in(summary, SCHEMA_CHANGE), LONGEST_WORDS),
        unmet_rows=batch.unmet_rows,
        unmet=unmet_in(summary.additional_properties.items()) if summary else {},
        dead_letters=batch.dead_letters,
        rescued_rows=batch.rescued_rows,
        rescued=rescued_in(text_in(summary, RESCUED)),
        changes=batch.changes,
        changelog=shown(text_in(summary, CHANGELOG_TABLE), LONGEST_WORDS),
    )


def sinks(table: Table, known: Retained | None = None) -> list[SinkState]:
    """Every sink with a ledger entry or a retained mark, by name, except sinks that were removed.

    A mark that expiry cut off from its branch, such as a mark that only an audit tag retains, does not prove a lost
    ledger. A verdict does not see it either, unless the ledger tag retains it. `known` saves reading `retained` again.
    """
    known = known or retained(table)
    by_key = by_sink(known.commits)
    marked = {key for key, found in by_key.items() if any(one.in_branch is not None for one in found)}
    marked |= {key for key in by_key.keys() - marked if _is_marked(table, key)}
    keys = {key for key in marked if key.ledger_property not in known.forgotten} | set(keys_of_ledger(table))
    return [_state(table, key, by_key.get(key, ())) for key in sorted(keys, key=_order)]


def _is_marked(table: Table, key: SinkKey) -> bool:
    """True if the sink has an own mark, as the rule for a lost ledger requires."""
    view = view_table(table, key)
    return Situation(view, key, NO_BATCH, view.table_uuid).has_own_mark


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
        unknown_keys=sum(batch.unknown_keys for batch in counted),
        unmet_rows=sum(batch.unmet_rows for batch in counted),
        dead_letters=sum(batch.dead_letters for batch in counted),
        rescued_rows=sum(batch.rescued_rows for batch in counted),
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
