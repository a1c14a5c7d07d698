"""The request that carries a change out: a snapshot on the head, the updates of properties and tags, and the fence."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, update
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from lakesink_catalog.commit.clock import CLOCK_TOLERANCE_MS
from lakesink_catalog.commit.evolution import evolve
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.connect.catalog_failures import translated
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.manifests.copying import AtOnce
from lakesink_catalog.manifests.lists import manifests_under, write_list
from lakesink_catalog.manifests.rewriting import FileChange
from lakesink_catalog.snapshots import snapshots_by_id
from lakesink_protocol.change import SCHEMA_CHANGE
from lakesink_protocol.events import ClockBehind, Listener


@dataclass(frozen=True, slots=True)
class Request:
    """One atomic call of `commit_table`, with the manifest list that was written for it.

    `new_schema` is the schema that it makes current; None if it changes none.
    """

    requirements: tuple[update.TableRequirement, ...]
    updates: tuple[update.TableUpdate, ...]
    manifest_list: str
    new_schema: Schema | None = None


Merge = Callable[[Table, Sequence[ManifestFile], int | None], Sequence[ManifestFile]]
"""Fewer manifests with the same files, see `ManifestMerger.merge`."""


def unmerged(_table: Table, manifests: Sequence[ManifestFile], _head: int | None) -> Sequence[ManifestFile]:
    """Merges none."""
    return manifests


def build_request(
    table: Table,
    change: Change,
    time_ms: int,
    emit: Listener = LISTENERS,
    at_once: AtOnce = map,
    merge: Merge = unmerged,
) -> Request:
    """Build the request of a change on its head; writes a manifest list, and the manifests that the change needs.

    A schema change is part of the same request, so no reader sees one without the other. `time_ms` is that of the
    snapshot, see `snapshot_time_ms`; `merge` gets the manifests of the head that stay.

    Raises:
        CommitFailedException: A file of the head that should end cannot: its manifest cannot be rewritten.
    """
    evolved = evolve(table, change.schema_change)
    parent = snapshots_by_id(table.metadata).get(change.head) if change.head is not None else None
    under = manifests_under(table.io, parent)
    data = FileChange(ManifestContent.DATA, change.added, change.ended, change.snapshot_id).write(
        table, under, emit, at_once
    )
    if len(data.removed) != len(change.ended):
        raise CommitFailedException("a file that stayed would show its rows twice")
    deletes = FileChange(ManifestContent.DELETES, change.deletes, change.replaced, change.snapshot_id).write(
        evolved.table, data.kept, emit, at_once
    )
    own = [] if change.prepared is None else [one.to_manifest_file() for one in change.prepared.manifests]
    carried = merge(table, deletes.kept, change.head)
    snapshot = snapshot_on(
        evolved.table,
        change.head,
        change.snapshot_id,
        [*own, *data.written, *deletes.written, *carried],
        {
            **change.snapshot_properties,
            **replace(change, replaced=deletes.removed).counts(parent.summary if parent else None),
            **change.says,
            **({SCHEMA_CHANGE: change.schema_change.in_words} if change.schema_change and evolved.updates else {}),
        },
        time_ms,
        operation_of(replaces=bool(change.added or change.ended), added=bool(own), deletes=bool(deletes.written)),
    )
    new_schema = evolved.table.schema() if evolved.updates else None
    updates = (*evolved.updates, *_updates(table, change, snapshot))
    return Request(_fence(table, change), updates, snapshot.manifest_list, new_schema)


def operation_of(*, replaces: bool, added: bool, deletes: bool) -> Operation:
    """The operation of a snapshot: other writers search for conflicts by it.

    A compaction of theirs would bring deleted rows back if the snapshot with their positions were called an append.
    """
    if replaces:
        return Operation.REPLACE
    if not deletes:
        return Operation.APPEND
    return Operation.OVERWRITE if added else Operation.DELETE


def as_loaded(table: Table, branch: str, head: int | None) -> list[update.TableRequirement]:
    """Assert the table, its schema, and the head of a branch."""
    return [
        update.AssertTableUUID(uuid=table.metadata.table_uuid),
        update.AssertRefSnapshotId(ref=branch, snapshot_id=head),
        update.AssertCurrentSchemaId(current_schema_id=table.metadata.current_schema_id),
    ]


def is_current(table: Table, branch: str) -> bool:
    """True if table and head of the branch are those in the catalog, by a request that changes nothing.

    A catalog may answer a load with an older state.

    Raises:
        CatalogError: The catalog failed, so that nothing is known.
    """
    head, schema_id = table.metadata.refs.get(branch), table.metadata.current_schema_id
    requirements = tuple(as_loaded(table, branch, None if head is None else head.snapshot_id))

    def ask() -> bool:
        try:
            table.catalog.commit_table(table, requirements, (update.SetCurrentSchemaUpdate(schema_id=schema_id),))
        except (CommitFailedException, NoSuchTableError):
            return False
        return True

    return translated("The catalog", table.catalog.properties, ask)


def _fence(table: Table, change: Change) -> tuple[update.TableRequirement, ...]:
    fence = as_loaded(table, change.branch, change.head)
    if change.schema_change is not None:  # a column added and dropped again leaves the schema id as it was
        fence.append(update.AssertLastAssignedFieldId(last_assigned_field_id=table.metadata.last_column_id))
    last_partition_id = table.metadata.last_partition_id
    if last_partition_id is not None:  # catalogs can assign the id of a spec again, but not the ids of its fields
        fence.append(update.AssertLastAssignedPartitionId(last_assigned_partition_id=last_partition_id))
    if table.metadata.snapshots:  # PyIceberg refuses assertions on tags of others; there, the head is the only fence
        fence += (update.AssertRefSnapshotId(ref=tag.name, snapshot_id=tag.before) for tag in change.tags)
    return tuple(fence)


def _updates(table: Table, change: Change, snapshot: Snapshot) -> Iterator[update.TableUpdate]:
    yield update.AddSnapshotUpdate(snapshot=snapshot)
    yield branch_at(table, change.branch, change.snapshot_id)
    if texts := {name: text for name, text in change.properties.items() if text is not None}:
        yield update.SetPropertiesUpdate(updates=texts)
    if removals := [name for name, text in change.properties.items() if text is None]:
        yield update.RemovePropertiesUpdate(removals=removals)
    for tag in change.tags:
        if tag.after is not None:
            yield tag_at(tag.name, tag.after, tag.max_age_ms)
        elif tag.before is not None:
            yield update.RemoveSnapshotRefUpdate(ref_name=tag.name)


def tag_at(name: str, snapshot_id: int, max_age_ms: int | None) -> update.SetSnapshotRefUpdate:
    """Create a tag, or move it."""
    return update.SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.TAG,
        snapshot_id=snapshot_id,
        max_ref_age_ms=max_age_ms,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def branch_at(table: Table, branch: str, snapshot_id: int) -> update.SetSnapshotRefUpdate:
    """Create a branch, or move it without changing its own settings."""
    there = table.metadata.refs.get(branch)
    return update.SetSnapshotRefUpdate(
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
