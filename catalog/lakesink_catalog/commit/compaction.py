"""Commits a compaction: the live rows of some data files in new ones, as a snapshot of its own that changes no row.

Like the deletes of a batch, a compaction is right on one head only. It is attempted once, and asserts that head: if
another writer was quicker, the table stays as it is. The replaced files stay: older snapshots have them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
)

from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.old_metadata import delete_old_metadata
from lakesink_catalog.commit.request import branch_at, snapshot_on, snapshot_time_ms
from lakesink_catalog.commit.summary import compaction_summary
from lakesink_catalog.manifests.lists import manifests_under
from lakesink_catalog.manifests.live import LiveFile
from lakesink_catalog.manifests.rewriting import FileChange, Rewritten
from lakesink_protocol.change import ContentFile
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.ledger import COMPACTED
from lakesink_protocol.verdict import SUPPORTED_FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class Compacted:
    """Data files of a head, and the files that have their live rows.

    Attributes:
        removed: The replaced data files, as they are live on the head.
        deletes: The delete files on the head that name one of these, and no other data file.
    """

    head: int
    added: tuple[ContentFile, ...]
    removed: tuple[LiveFile, ...]
    deletes: tuple[LiveFile, ...]


@dataclass(frozen=True, slots=True)
class CompactionCommit:
    """Commits one compaction to the branch of a sink."""

    load: Callable[[], Table]
    key: SinkKey
    effects: Effects = field(default_factory=Effects)

    def run(self, first: Table, compacted: Compacted) -> int | None:
        """The id of the new snapshot; None if the table has changed, or a manifest cannot be rewritten.

        Any other error is raised: then the compaction may have landed or not, and either is right. The caller has the
        turn at the table.
        """
        table = self.load()
        if not self._still_holds(first, table, compacted):
            return None
        snapshot_id = self.effects.new_snapshot_id()
        request = self._request(table, compacted, snapshot_id)
        if request is None:
            return None
        try:
            after = table.catalog.commit_table(table, *request).metadata
        except CommitFailedException:
            return None
        delete_old_metadata(table, after, self.effects.emit)
        return snapshot_id

    def _still_holds(self, first: Table, table: Table, compacted: Compacted) -> bool:
        head, before, now = table.metadata.refs.get(self.key.branch), first.metadata, table.metadata
        same = (before.table_uuid, before.current_schema_id) == (now.table_uuid, now.current_schema_id)
        return (
            same
            and now.format_version == SUPPORTED_FORMAT_VERSION
            and head is not None
            and head.snapshot_id == compacted.head
        )

    def _request(
        self, table: Table, compacted: Compacted, snapshot_id: int
    ) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]] | None:
        effects, parent = self.effects, table.metadata.snapshot_by_id(compacted.head)
        assert parent is not None, "a branch has its head"
        under = manifests_under(table.io, parent)
        data = self._change(table, under, compacted.added, compacted.removed, snapshot_id, ManifestContent.DATA)
        if len(data.removed) != len(compacted.removed):
            return None  # an old file that stayed would show its rows twice
        deletes = self._change(table, under, (), compacted.deletes, snapshot_id, ManifestContent.DELETES)
        gone = data.gone | deletes.gone
        kept = (one for one in under if one.manifest_path not in gone)
        summary = {
            **compaction_summary(parent.summary, compacted.added, compacted.removed, deletes.removed),
            COMPACTED: self.key.ledger_property,
        }
        time_ms = snapshot_time_ms(table, effects.now_ms(), effects.emit)
        manifests = [*data.written, *deletes.written, *kept]
        snapshot = snapshot_on(table, compacted.head, snapshot_id, manifests, summary, time_ms, Operation.REPLACE)
        requirements = (
            AssertTableUUID(uuid=table.metadata.table_uuid),
            AssertRefSnapshotId(ref=self.key.branch, snapshot_id=compacted.head),
            AssertCurrentSchemaId(current_schema_id=table.metadata.current_schema_id),
        )
        return requirements, (AddSnapshotUpdate(snapshot=snapshot), branch_at(table, self.key.branch, snapshot_id))

    def _change(
        self,
        table: Table,
        under: list[ManifestFile],
        added: tuple[ContentFile, ...],
        removed: tuple[LiveFile, ...],
        snapshot_id: int,
        content: ManifestContent,
    ) -> Rewritten:
        """The manifests with these files, written again."""
        touched = {file.manifest_path for file in removed}
        chosen = [one for one in under if one.manifest_path in touched]
        change = FileChange(content, added, removed, snapshot_id)
        return change.write(table, chosen, self.effects.emit, self.effects.at_once)
