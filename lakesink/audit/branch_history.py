"""A branch as far as its snapshots are retained: its ancestry, and the batches in it."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from lakesink_catalog.read.view import view_table
from lakesink_protocol.identity import MAIN_BRANCH, SinkKey
from lakesink_protocol.ledger import Mark, mark_of
from lakesink_protocol.situation import cherry_picked_from


@dataclass(frozen=True, slots=True)
class Step:
    """One batch in one snapshot: the snapshot of its commit, or a cherry-pick after a rollback."""

    mark: Mark
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class BranchHistory:
    """One branch."""

    name: str
    ancestry: tuple[Snapshot, ...]  # its snapshots, newest first, down to the first missing parent
    complete: bool  # True if the ancestry reaches the table's first snapshot
    steps: Mapping[SinkKey, tuple[Step, ...]]  # batches in the ancestry, oldest first, by their sink and branch
    blind: frozenset[int]  # cherry-picks of expired snapshots, which may contain any batch

    @property
    def head(self) -> Snapshot | None:
        """The newest snapshot; None if there is none."""
        return self.ancestry[0] if self.ancestry else None

    def chain(self, key: SinkKey) -> list[Mark | None]:
        """A sink's marks, oldest first; None for each blind snapshot."""
        known = {step.snapshot.snapshot_id: step.mark for step in self.steps.get(key, ())}
        ids = [snapshot.snapshot_id for snapshot in reversed(self.ancestry)]
        return [known.get(snapshot_id) for snapshot_id in ids if snapshot_id in known or snapshot_id in self.blind]


def branch_histories(table: Table) -> dict[str, BranchHistory]:
    """Every branch of a table by name; always includes ``main``."""
    marks = {snapshot.snapshot_id: mark_of(snapshot.summary) for snapshot in table.metadata.snapshots}
    refs = table.metadata.refs
    named = [name for name, ref in refs.items() if ref.snapshot_ref_type is SnapshotRefType.BRANCH]
    return {branch: _branch_history(table, branch, marks) for branch in sorted({MAIN_BRANCH, *named})}


def frontier(snapshots: Mapping[int, Snapshot]) -> list[int]:
    """The fewest retained snapshots that together reference everything that any retained snapshot references.

    An append keeps everything of its parent, so a parent with a retained append adds nothing.
    """
    appended_to = {
        snapshot.parent_snapshot_id
        for snapshot in snapshots.values()
        if snapshot.summary is not None and snapshot.summary.operation is Operation.APPEND
    }
    return [snapshot_id for snapshot_id in snapshots if snapshot_id not in appended_to]


def last_change_ms(table: Table) -> int:
    """The time of the table's newest change, by the committer's clock."""
    log = table.metadata.snapshot_log
    return max(table.metadata.last_updated_ms, log[-1].timestamp_ms if log else 0)


def _branch_history(table: Table, branch: str, marks: Mapping[int, Mark | None]) -> BranchHistory:
    ancestry = cast("tuple[Snapshot, ...]", tuple(view_table(table, SinkKey("audit", branch)).ancestry()))
    steps: dict[SinkKey, list[Step]] = defaultdict(list)
    for snapshot in reversed(ancestry):
        mark = marks[snapshot.snapshot_id] or marks.get(cherry_picked_from(snapshot.summary) or 0)
        if mark is not None:
            steps[mark.key].append(Step(mark, snapshot))
    oldest = min((snapshot.sequence_number or 0 for snapshot in ancestry), default=0)
    blind = frozenset(snapshot.snapshot_id for snapshot in ancestry if _is_blind(snapshot, marks))
    return BranchHistory(branch, ancestry, oldest <= 1, {key: tuple(found) for key, found in steps.items()}, blind)


def _is_blind(snapshot: Snapshot, marks: Mapping[int, Mark | None]) -> bool:
    source_id = cherry_picked_from(snapshot.summary)
    return source_id is not None and source_id not in marks and marks[snapshot.snapshot_id] is None
