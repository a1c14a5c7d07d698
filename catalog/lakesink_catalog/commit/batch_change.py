"""The change that a prepared batch makes on one head: its files and deletes, its mark, the ledger entry, the tags."""

from dataclasses import dataclass, field, replace

from lakesink_catalog.commit.decision import Decision
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.commit.table_change import Change, Located, TagMove
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.manifests.merging import MergePolicy
from lakesink_catalog.read.view import view_refs
from lakesink_protocol.events import Listener, TagTaken
from lakesink_protocol.ledger import LedgerEntry, Mark, next_entry, stated_of
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.row_changes import CHANGELOG_TABLE, MODE
from lakesink_protocol.tags import DEFAULT_MAX_AGE_MS, TagEvery, is_due, place_of_tag
from lakesink_protocol.verdict import Commit


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """Options of a sink's commits.

    Attributes:
        accept: An operator's accept of one refusal of one batch.
        ledger_tag: False where the catalog refuses tags; a rollback after expiry is then not noticed.
        ledger_tag_max_age_ms: ``max-ref-age-ms`` of the ledger tag.
        tag_every: Which batches get an audit tag; None for no batch.
        tag_max_age_ms: ``max-ref-age-ms`` of the audit tags.
        snapshot_properties: The user's own summary properties.
        prepared_max_age_ms: Unreferenced files older than this are checked before a commit refers to them.
    """

    accept: Accept | None = None
    ledger_tag: bool = True
    ledger_tag_max_age_ms: int = 30 * 24 * 3_600_000
    tag_every: TagEvery | None = None
    tag_max_age_ms: int = DEFAULT_MAX_AGE_MS
    snapshot_properties: tuple[tuple[str, str], ...] = ()
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    merge: MergePolicy = field(default_factory=MergePolicy)
    prepared_max_age_ms: int = 20 * 3_600_000


def batch_change(
    decision: Decision,
    prepared: PreparedBatch,
    options: CommitOptions,
    time_ms: int,
    located: Located | None = None,
    emit: Listener = LISTENERS,
) -> Change:
    """What the batch of this decision does to its table, in a snapshot of this time.

    `located` says which rows it removes from the head of the decision; None if it only appends.
    """
    assert isinstance(decision.verdict, Commit)
    assert located is None or located.head == decision.situation.view.head, "positions are right on one head only"
    key, view, changes = decision.situation.key, decision.situation.view, prepared.changes
    entry = _entry(decision, decision.verdict, prepared)
    says = prepared.quality.to_summary()
    if located is not None and changes is not None:
        says |= located.counts.to_summary() | {MODE: changes.mode.value}
        says |= {CHANGELOG_TABLE: changes.changelog} if changes.changelog else {}
    ledger_tag = TagMove(key.ledger_tag, view.tag_snapshot_id, prepared.snapshot_id, options.ledger_tag_max_age_ms)
    return Change(
        branch=key.branch,
        head=view.head,
        snapshot_id=prepared.snapshot_id,
        says=says | _mark(decision, decision.verdict, prepared, entry).to_summary(),
        prepared=prepared,
        deletes=() if located is None else located.deletes,
        replaced=() if located is None else located.replaced,
        schema_change=prepared.schema_change,
        properties={key.ledger_property: entry.to_json()},
        tags=(*([ledger_tag] if options.ledger_tag else []), *_audit_tag(decision, prepared, options, time_ms, emit)),
        snapshot_properties=dict(options.snapshot_properties),
    )


def _entry(decision: Decision, verdict: Commit, prepared: PreparedBatch) -> LedgerEntry:
    view, previous = decision.situation.view, decision.situation.entry
    snapshot_id, sequence_number = prepared.snapshot_id, view.last_sequence_number + 1
    if verdict.moves_ledger or previous is None:
        return next_entry(
            decision.situation.batch,
            snapshot_id=snapshot_id,
            sequence_number=sequence_number,
            table_uuid=view.table_uuid,
            keys=prepared.changes.key_ids if prepared.changes else (),
        )
    return replace(previous, snapshot_id=snapshot_id, sequence_number=sequence_number)


def _mark(decision: Decision, verdict: Commit, prepared: PreparedBatch, entry: LedgerEntry) -> Mark:
    outcome = "accepted" if verdict.accepted else "recovered" if prepared.recovered else "committed"
    return Mark(
        decision.situation.key,
        outcome=outcome,
        accepted=verdict.accepted,
        ledger_batch_id=entry.batch_id,
        missing_inputs=prepared.without_inputs,
        **stated_of(decision.situation.batch),
    )


def _audit_tag(
    decision: Decision, prepared: PreparedBatch, options: CommitOptions, time_ms: int, emit: Listener
) -> tuple[TagMove, ...]:
    """The audit tag of the batch, if one is due."""
    every, situation = options.tag_every, decision.situation
    if every is None or not is_due(every, situation, refs := view_refs(decision.table), time_ms):
        return ()
    place = place_of_tag(situation, refs)
    if place is None:
        emit(TagTaken(situation.key.audit_tag(situation.batch.batch_id)))
        return ()
    return (TagMove(*place, prepared.snapshot_id, options.tag_max_age_ms),)
