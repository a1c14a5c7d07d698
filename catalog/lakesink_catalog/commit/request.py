"""The request of one commit attempt: a snapshot with its batch mark, the ledger entry, the tags, and the fence."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.manifest import ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from lakesink_catalog.commit.clock import CLOCK_TOLERANCE_MS
from lakesink_catalog.commit.evolution import evolve
from lakesink_catalog.commit.located import Located
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.commit.summary import batch_summary
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.manifests.lists import manifests_under, write_list
from lakesink_catalog.manifests.merging import ManifestMerger, MergePolicy
from lakesink_catalog.manifests.rewriting import DeleteChange, DeleteManifests
from lakesink_catalog.read.view import view_refs
from lakesink_protocol.change import SCHEMA_CHANGE
from lakesink_protocol.events import ClockBehind, Listener, TagTaken
from lakesink_protocol.identity import Batch
from lakesink_protocol.ledger import LedgerEntry, Mark, next_entry, next_mark
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.situation import Situation
from lakesink_protocol.tags import DEFAULT_MAX_AGE_MS, TagEvery, TagPlace, is_due, place_of_tag
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


@dataclass(frozen=True, slots=True)
class PlannedCommit:
    """The change to commit, as one decision about the table allows it.

    `located` says which rows it removes from the head of the decision; None if it only appends.
    """

    situation: Situation
    verdict: Commit
    batch: Batch
    prepared: PreparedBatch
    options: CommitOptions
    located: Located | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One atomic call of `commit_table`, with the manifest list that was written for it.

    `new_schema` is the schema that it makes current; None if it changes none.
    """

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    manifest_list: str
    new_schema: Schema | None = None


def build_request(
    table: Table, change: PlannedCommit, merger: ManifestMerger, now_ms: int, emit: Listener = LISTENERS
) -> Request:
    """Build the change on the head of the decision; writes a manifest list, and a merged manifest if a merge is done.

    A schema change of the batch is part of the same request, so no reader sees one without the other. `merger` belongs
    to the batch and is kept across its attempts.
    """
    schema_change = change.prepared.schema_change
    evolved = evolve(table, schema_change)
    head = change.situation.view.head
    parent = table.metadata.snapshot_by_id(head) if head is not None else None
    entry = _entry(change, change.situation.view.last_sequence_number + 1)
    deletes = _deletes(evolved.table, change, manifests_under(table.io, parent), merger)
    carried = merger.merge(table, deletes.kept, head)
    own = (manifest.to_manifest_file() for manifest in change.prepared.manifests)
    manifests = [*own, *deletes.written, *carried]
    summary = {
        **dict(change.options.snapshot_properties),
        **batch_summary(parent.summary if parent else None, change.prepared, change.located, deletes.removed),
        **_mark(change, entry).to_summary(),
        **({SCHEMA_CHANGE: schema_change.in_words} if schema_change and evolved.updates else {}),
    }
    time_ms = snapshot_time_ms(table, now_ms, emit)
    operation = operation_of(added=bool(change.prepared.manifests), deletes=bool(deletes.written))
    snapshot = snapshot_on(evolved.table, head, change.prepared.snapshot_id, manifests, summary, time_ms, operation)
    tag = _audit_tag(table, change, snapshot.timestamp_ms, emit)
    new_schema = evolved.table.schema() if evolved.updates else None
    updates = (*evolved.updates, *_updates(table, change, snapshot, entry, tag))
    return Request(_fence(table, change, tag), updates, snapshot.manifest_list, new_schema)


def _deletes(
    table: Table, change: PlannedCommit, under: Sequence[ManifestFile], merger: ManifestMerger
) -> DeleteManifests:
    """The delete manifests of the snapshot, and all manifests of its parent that it keeps."""
    located = change.located
    if located is None:
        return DeleteManifests((), under)
    assert located.head == change.situation.view.head, "positions are right on one head only"
    delete = DeleteChange(under, located.deletes, located.replaced, change.prepared.snapshot_id)
    return delete.write(table, merger.emit, merger.at_once)


def operation_of(*, added: bool, deletes: bool) -> Operation:
    """The operation of a snapshot with such manifests: other writers search for conflicts by it.

    A compaction would bring deleted rows back if the snapshot with their positions were called an append.
    """
    if not deletes:
        return Operation.APPEND
    return Operation.OVERWRITE if added else Operation.DELETE


def _entry(change: PlannedCommit, sequence_number: int) -> LedgerEntry:
    snapshot_id, previous = change.prepared.snapshot_id, change.situation.entry
    if change.verdict.moves_ledger or previous is None:
        return next_entry(
            change.batch,
            snapshot_id=snapshot_id,
            sequence_number=sequence_number,
            table_uuid=change.situation.view.table_uuid,
            keys=change.prepared.changes.key_ids if change.prepared.changes else (),
        )
    return replace(previous, snapshot_id=snapshot_id, sequence_number=sequence_number)


def _mark(change: PlannedCommit, entry: LedgerEntry) -> Mark:
    accepted = change.verdict.accepted
    outcome = "accepted" if accepted else "recovered" if change.prepared.recovered else "committed"
    return next_mark(
        change.situation.key,
        change.batch,
        outcome=outcome,
        accepted=accepted,
        ledger_batch_id=entry.batch_id,
        missing_inputs=change.prepared.without_inputs,
    )


def _audit_tag(table: Table, change: PlannedCommit, time_ms: int, emit: Listener) -> TagPlace | None:
    every = change.options.tag_every
    if every is None:
        return None
    refs = view_refs(table)
    if not is_due(every, change.situation, refs, time_ms):
        return None
    place = place_of_tag(change.situation, refs)
    if place is None:
        emit(TagTaken(change.situation.key.audit_tag(change.batch.batch_id)))
    return place


def _fence(table: Table, change: PlannedCommit, tag: TagPlace | None) -> tuple[TableRequirement, ...]:
    key, view = change.situation.key, change.situation.view
    fence: list[TableRequirement] = [
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(ref=key.branch, snapshot_id=view.head),
        AssertCurrentSchemaId(current_schema_id=table.metadata.current_schema_id),
    ]
    if change.prepared.schema_change is not None:  # a column added and dropped again leaves the schema id as it was
        fence.append(AssertLastAssignedFieldId(last_assigned_field_id=table.metadata.last_column_id))
    last_partition_id = table.metadata.last_partition_id
    if last_partition_id is not None:  # catalogs can assign the id of a spec again, but not the ids of its fields
        fence.append(AssertLastAssignedPartitionId(last_assigned_partition_id=last_partition_id))
    # PyIceberg refuses assertions on tags of a table without snapshots; there, the missing head is the only fence.
    if change.options.ledger_tag and table.metadata.snapshots:
        fence.append(AssertRefSnapshotId(ref=key.ledger_tag, snapshot_id=view.tag_snapshot_id))
    if tag is not None and table.metadata.snapshots:
        fence.append(AssertRefSnapshotId(ref=tag.name, snapshot_id=tag.replaces))
    return tuple(fence)


def _updates(
    table: Table, change: PlannedCommit, snapshot: Snapshot, entry: LedgerEntry, tag: TagPlace | None
) -> tuple[TableUpdate, ...]:
    key, options = change.situation.key, change.options
    updates: list[TableUpdate] = [
        AddSnapshotUpdate(snapshot=snapshot),
        branch_at(table, key.branch, snapshot.snapshot_id),
        SetPropertiesUpdate(updates={key.ledger_property: entry.to_json()}),
    ]
    if options.ledger_tag:
        updates.append(tag_at(key.ledger_tag, snapshot.snapshot_id, options.ledger_tag_max_age_ms))
    if tag is not None:
        updates.append(tag_at(tag.name, snapshot.snapshot_id, options.tag_max_age_ms))
    return tuple(updates)


def tag_at(name: str, snapshot_id: int, max_age_ms: int | None) -> SetSnapshotRefUpdate:
    """Create a tag, or move it."""
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.TAG,
        snapshot_id=snapshot_id,
        max_ref_age_ms=max_age_ms,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def branch_at(table: Table, branch: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """Create a branch, or move it without changing its own settings."""
    there = table.metadata.refs.get(branch)
    return SetSnapshotRefUpdate(
        ref_name=branch,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        max_ref_age_ms=there.max_ref_age_ms if there else None,
        max_snapshot_age_ms=there.max_snapshot_age_ms if there else None,
        min_snapshots_to_keep=there.min_snapshots_to_keep if there else None,
    )


def snapshot_on(
    table: Table,
    head: int | None,
    snapshot_id: int,
    manifests: Iterable[ManifestFile],
    summary: Mapping[str, str],
    time_ms: int,
    operation: Operation = Operation.APPEND,
) -> Snapshot:
    """A snapshot with the table's current schema on this head; writes its manifest list."""
    sequence_number = getattr(table.metadata, "last_sequence_number", 0) + 1  # version 1 has none
    return Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head,
        sequence_number=sequence_number,
        timestamp_ms=time_ms,
        manifest_list=write_list(
            table, manifests, snapshot_id=snapshot_id, parent_id=head, sequence_number=sequence_number
        ),
        summary=Summary(operation, **summary),
        schema_id=table.metadata.current_schema_id,
    )


def snapshot_time_ms(table: Table, now_ms: int, emit: Listener = LISTENERS) -> int:
    """Time of a new snapshot, always after the table's last change: Java refuses a snapshot log that runs backwards.

    An equal time is not enough: PyIceberg treats it as unset and takes its own clock, which can be behind.
    """
    log = table.metadata.snapshot_log
    last = max(table.metadata.last_updated_ms, log[-1].timestamp_ms if log else 0)
    if last - now_ms > CLOCK_TOLERANCE_MS:
        emit(ClockBehind((last - now_ms) // 1000))
    return max(now_ms, last + 1)
