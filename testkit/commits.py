"""How tests commit: what they need of `lakesink_catalog.commit`, in one place. No Spark."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from lakesink_catalog.commit.batch_change import CommitOptions
from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.manifests.lists import write_list
from lakesink_catalog.manifests.write import write_batch_manifests
from lakesink_protocol.change import ContentFile
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.outcome import AlreadyCommitted, Committed


def fence_of(
    load: Callable[[], Table],
    key: SinkKey,
    effects: Effects,
    *,
    turn: Callable[[], AbstractContextManager[None]] = nullcontext,
    **options: Any,
) -> FencedCommit:
    """The commits of one sink to a table, which is loaded once to know it again."""
    uuid = str(load().metadata.table_uuid)
    return FencedCommit(load, key, uuid, CommitOptions(**options), effects, turn=turn)


def land(
    fence: FencedCommit, batch: Batch, files: Sequence[ContentFile] = (), **prepared: Any
) -> Committed | AlreadyCommitted | None:
    """Decide, prepare and commit one batch of these files."""
    decision = fence.decide(batch)
    return fence.commit(batch, fence.prepare(decision, files, schema=decision.table.schema(), **prepared))


def add(table: Table, files: Sequence[ContentFile]) -> None:
    """Commit closed files, with all that their receipts say of them, as the table's first snapshot, without a sink."""
    snapshot_id = table.metadata.new_snapshot_id()
    records = write_batch_manifests(table, files, schema=table.schema(), snapshot_id=snapshot_id)
    manifests = [record.to_manifest_file() for record in records]
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=None,
        sequence_number=1,
        timestamp_ms=table.metadata.last_updated_ms,
        manifest_list=write_list(table, manifests, snapshot_id=snapshot_id, parent_id=None, sequence_number=1),
        summary=Summary(Operation.APPEND),
        schema_id=table.schema().schema_id,
    )
    main = SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id})
    table.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=snapshot), main))
    table.refresh()
