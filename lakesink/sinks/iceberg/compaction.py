"""Compacts files of a table after a batch of changes has landed.

A compaction is a snapshot of its own, which changes no row. The batch does not depend on it: if it fails, or if another
writer was quicker, the table stays as it is, and a later batch tries again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyroaring import BitMap64

from lakesink.compact.choose import MOST_FILES, Group, Pace, choose
from lakesink.compact.rewrite import ChosenFile, open_all, rewrite
from lakesink.keys.deleted_rows import Deleted, read_deleted
from lakesink.keys.footers import opener
from lakesink.keys.live_rows import applicable
from lakesink.parquet.filesystem import NewFiles
from lakesink.parquet.positions import below
from lakesink.rows.plan import WritePlan
from lakesink.sinks.iceberg.rows_on_head import LocateMemory
from lakesink_catalog.commit.change_commit import Applied, ChangeCommit
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_catalog.manifests.live_reading import live_files
from lakesink_catalog.manifests.merging import MergeMemory
from lakesink_protocol import events
from lakesink_protocol.change import ContentFile
from lakesink_protocol.errors import WriteError
from lakesink_protocol.fence import Unseen
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.ledger import COMPACTED
from lakesink_protocol.redact import describe
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.verdict import SUPPORTED_FORMAT_VERSION


@dataclass(slots=True)
class CompactionMemory:
    """What compactions remember from batch to batch.

    Attributes:
        unsuitable: Files that are not compacted: by path, the schema whose columns they do not have.
    """

    unsuitable: dict[str, int] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True, slots=True)
class Compaction:
    """The compaction of one sink's branch after one of its batches.

    Attributes:
        plan: That of the batch: files are written as it says.
        added: Files that the batch has added.
    """

    load: Callable[[], Table]
    key: SinkKey
    plan: WritePlan
    added: int
    located: LocateMemory
    memory: CompactionMemory
    merges: MergeMemory
    effects: Effects

    def compact(self) -> None:
        """Compact the files that are due, as far as one compaction may; an error is only told: the batch is in."""
        if not self._due(self.located.head) or not self.memory.pace.is_due():
            return
        batch_id, emit, known = self.plan.batch_id, self.effects.emit, dict[str, Any]()
        done: Applied | Unseen | None = None
        try:
            table = self.load()
            known = {**table.catalog.properties, **table.io.properties}
            commit = ChangeCommit(self.load, "compaction", RetryPolicy(num_retries=0), self.effects)
            done = commit.run(table, self._change)
        except CommitFailedException:
            emit(events.CompactionLost(batch_id))
        except Exception as error:  # noqa: BLE001 - the table is right without it
            emit(events.CompactionFailed(batch_id, describe(error, known)))
        if isinstance(done, Unseen):
            emit(events.CompactionFailed(batch_id, done.trouble))
        elif done is not None and done.change is not None:
            change = done.change
            if self.merges.snapshot_id == change.head:  # no other writer came between batch and compaction
                self.merges.snapshot_id = change.snapshot_id
            rows = sum(file.record_count for file in change.added)
            emit(events.FilesCompacted(batch_id, change.snapshot_id, len(change.ended), len(change.added), rows))
        self.memory.pace.note(done=isinstance(done, Applied))

    def _change(self, table: Table, snapshot_id: int) -> Change | None:
        """The compaction of what is due on the head, which has the turn: else rivals would be quicker again and again.

        None if nothing is due, or if the table has changed since the batch.
        """
        head, metadata = table.metadata.refs.get(self.key.branch), table.metadata
        now = (table.schema().schema_id, table.spec().spec_id, metadata.format_version)
        if head is None or now != (self.plan.schema_id, self.plan.spec_id, SUPPORTED_FORMAT_VERSION):
            return None
        keys = self.plan.changes.keys if self.plan.changes else ()
        live = live_files(table, head.snapshot_id, self.located.live, bounds_of=keys, at_once=self.effects.at_once)
        added, ended, replaced = self._rewritten(table, live)
        if not ended:
            return None
        self.effects.emit(events.CompactionDue(self.plan.batch_id))
        return Change(
            self.key.branch,
            head.snapshot_id,
            snapshot_id,
            says={COMPACTED: self.key.ledger_property},
            added=tuple(added),
            ended=tuple(ended),
            replaced=tuple(replaced),
        )

    def _due(self, live: LiveFiles) -> list[Group]:
        paths = {file.path for file in live.data}
        self.memory.unsuitable = {path: schema for path, schema in self.memory.unsuitable.items() if path in paths}
        target, most_files = self.plan.target_file_size_bytes, max(MOST_FILES, 2 * self.added)
        unsuitable = {path for path, schema in self.memory.unsuitable.items() if schema == self.plan.schema_id}
        return choose(live, self.plan.spec_id, target, unsuitable, most_files)

    def _rewritten(
        self, table: Table, live: LiveFiles
    ) -> tuple[Sequence[ContentFile], Sequence[LiveFile], Sequence[LiveFile]]:
        """New files, the data files that have these rows, and the delete files that name only those; perhaps none."""
        added, ended, replaced = list[ContentFile](), list[LiveFile](), list[LiveFile]()
        failed = list[WriteError]()
        deletes = {file.path: file for file in live.deletes}
        for group in self._due(live):
            try:
                wanted = applicable(group.files, live.deletes)
                deleted = read_deleted(wanted, opener(table), self.located.deletes)
                new, old = self._rewritten_group(table, group, deleted)
            except WriteError as error:  # other groups can be compacted
                failed.append(error)
                continue
            added += new
            ended += old
            replaced += (deletes[path] for file in old for path in deleted.alone.get(file.path, ()))
        if failed and not ended:
            raise failed[0]
        for trouble in failed:
            self.effects.emit(events.CompactionFailed(self.plan.batch_id, describe(trouble)))
        return added, ended, replaced

    def _rewritten_group(
        self, table: Table, group: Group, deleted: Deleted
    ) -> tuple[Sequence[ContentFile], Sequence[LiveFile]]:
        """The new files and those whose place they take, which have the plan's columns, or no live row."""
        chosen = []
        for file in group.files:
            gone = below(deleted.positions.get(file.path, BitMap64()), file.record_count)
            chosen.append(ChosenFile(file.path, file.file_size_bytes, file.record_count, gone))
        with_rows = [file for file in chosen if len(file.deleted) < file.rows]
        opened = open_all(with_rows, opener(table), self.plan)
        unsuitable = {file.path for file in with_rows} - {one.file.path for one in opened}
        self.memory.unsuitable |= dict.fromkeys(unsuitable, self.plan.schema_id)
        removed = [file for file in group.files if file.path not in unsuitable]
        if len(removed) < group.enough:
            return (), ()
        storage = NewFiles(lambda location: table.io.new_output(location).create(), table.io.delete)
        return rewrite(opened, removed[0].partition, self.plan, storage), removed
