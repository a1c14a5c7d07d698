"""Requests as a sink sends them, and what a table shows of them: for cases that change one thing in a request."""

from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from lakesink_catalog.commit.request import snapshot_time_ms
from lakesink_catalog.manifests.lists import write_list
from tests.proof.catalogs import SCHEMA, Place

MAIN, TAG = "main", "lakesink-events"
MAX_AGE_MS = 30 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Commit:
    """One request: as a sink sends it unless a case says otherwise."""

    table: Table
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]

    def send(self) -> CommitTableResponse:
        return self.table.catalog.commit_table(self.table, self.requirements, self.updates)

    def asserting(self, *requirements: TableRequirement) -> "Commit":
        return replace(self, requirements=requirements)

    def asking(self, *updates: TableUpdate) -> "Commit":
        return replace(self, updates=updates)


def create(place: Place, **properties: str) -> Table:
    return place.catalog.create_table(place.name, SCHEMA, properties={"format-version": "2", **properties})


def load(place: Place) -> Table:
    return place.catalog.load_table(place.name)


def ref_at(name: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    kind = SnapshotRefType.TAG if name == TAG else SnapshotRefType.BRANCH
    age = MAX_AGE_MS if name == TAG else None
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=kind,
        snapshot_id=snapshot_id,
        max_ref_age_ms=age,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def head_is(snapshot_id: int | None, ref: str = MAIN) -> AssertRefSnapshotId:
    return AssertRefSnapshotId(ref=ref, snapshot_id=snapshot_id)


def snapshot_on(table: Table, snapshot_id: int, branch: str = MAIN) -> Snapshot:
    head = table.metadata.refs.get(branch)
    parent, sequence = head.snapshot_id if head else None, last_sequence(table.metadata) + 1
    return Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent,
        sequence_number=sequence,
        timestamp_ms=snapshot_time_ms(table, 0),
        manifest_list=write_list(table, (), snapshot_id=snapshot_id, parent_id=parent, sequence_number=sequence),
        summary=Summary(Operation.APPEND, **{"lakesink.batch": str(snapshot_id), "total-records": "0"}),
        schema_id=table.metadata.current_schema_id,
    )


def batch(table: Table, snapshot_id: int, branch: str = MAIN) -> Commit:
    """What a sink sends: snapshot, branch, ledger entry and tag, asserting table, head, schema and tag."""
    head, tag = table.metadata.refs.get(branch), table.metadata.refs.get(TAG)
    requirements: list[TableRequirement] = [
        AssertTableUUID(uuid=table.metadata.table_uuid),
        head_is(head.snapshot_id if head else None, branch),
        AssertCurrentSchemaId(current_schema_id=table.metadata.current_schema_id),
    ]
    if table.metadata.snapshots:
        requirements.append(head_is(tag.snapshot_id if tag else None, TAG))
    updates: list[TableUpdate] = [
        AddSnapshotUpdate(snapshot=snapshot_on(table, snapshot_id, branch)),
        ref_at(branch, snapshot_id),
        SetPropertiesUpdate(updates={"ledger": str(snapshot_id)}),
        ref_at(TAG, snapshot_id),
    ]
    return Commit(table, tuple(requirements), tuple(updates))


def from_ahead(commit: Commit, time_ms: int) -> Commit:
    added, *rest = commit.updates
    assert isinstance(added, AddSnapshotUpdate)
    return commit.asking(AddSnapshotUpdate(snapshot=added.snapshot.model_copy(update={"timestamp_ms": time_ms})), *rest)


def last_sequence(metadata: TableMetadata) -> int:
    return getattr(metadata, "last_sequence_number", 0)


def _ref(ref: SnapshotRef) -> tuple[int, SnapshotRefType, int | None]:
    return ref.snapshot_id, ref.snapshot_ref_type, ref.max_ref_age_ms


def shown(metadata: TableMetadata) -> dict[str, Any]:
    """All that lakesink looks at."""
    return {
        "uuid": metadata.table_uuid,
        "properties": {key: value for key, value in metadata.properties.items() if key in ("ledger", "own", "other")},
        "refs": {name: _ref(ref) for name, ref in metadata.refs.items()},
        "snapshots": [(one.snapshot_id, one.parent_snapshot_id, one.sequence_number) for one in metadata.snapshots],
        "sequence": last_sequence(metadata),
        "schema": metadata.current_schema_id,
        "location": metadata.location,
    }
