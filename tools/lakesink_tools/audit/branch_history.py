"""A branch as far as its snapshots are retained: its ancestry, and the batches in it."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from lakesink_catalog.read.view import view_table
from lakesink_protocol.identity import MAIN_BRANCH, SinkKey
from lakesink_protocol.ledger import Mark
from lakesink_tools.audit.snapshot_facts import SnapshotFacts


@dataclass(frozen=True, slots=True)
class Step:
    """One batch in one snapshot: the snapshot of its commit, or a cherry-pick after a rollback."""

    mark: Mark
    snapshot: SnapshotFacts


@dataclass(frozen=True, slots=True)
class BranchHistory:
    """One branch."""

    name: str
    ancestry: tuple[SnapshotFacts, ...]  # its snapshots, newest first, down to the first missing parent
    complete: bool  # True if the ancestry reaches the table's first snapshot
    steps: Mapping[SinkKey, tuple[Step, ...]]  # batches in the ancestry, oldest first, by their sink and branch
    blind: frozenset[int]  # cherry-picks of expired snapshots, which may contain any batch

    @property
    def head(self) -> SnapshotFacts | None:
        """The newest snapshot; None if there is none."""
        return self.ancestry[0] if self.ancestry else None

    def chain(self, key: SinkKey) -> list[Mark | None]:
        """A sink's marks, oldest first; None for each blind snapshot."""
        known = {step.snapshot.snapshot_id: step.mark for step in self.steps.get(key, ())}
        ids = [snapshot.snapshot_id for snapshot in reversed(self.ancestry)]
        return [known.get(snapshot_id) for snapshot_id in ids if snapshot_id in known or snapshot_id in self.blind]


def branch_histories(table: Table, snapshots: Mapping[int, SnapshotFacts]) -> dict[str, BranchHistory]:
    """Every branch of a table by name; always includes ``main``."""
    refs = table.metadata.refs
    named = [name for name, ref in refs.items() if ref.snapshot_ref_type is SnapshotRefType.BRANCH]
    return {branch: _branch_history(table, branch, snapshots) for branch in sorted({MAIN_BRANCH, *named})}


def frontier(snapshots: Mapping[int, SnapshotFacts]) -> list[int]:
    """The fewest retained snapshots that together reference everything that any retained snapshot references.

    An append keeps everything of its parent, so a parent with a retained append adds nothing. A batch of changes by key
    keeps the data files of its parent. It may replace delete files, and the snapshots that added these show them:
    see `replacing`.
    """
    kept = {snapshot.parent_snapshot_id for snapshot in snapshots.values() if _keeps_parent(snapshot, snapshots)}
    return [snapshot_id for snapshot_id in snapshots if snapshot_id not in kept]


def replacing(snapshots: Mapping[int, SnapshotFacts]) -> list[SnapshotFacts]:
    """The snapshots whose own manifests may show delete files that `frontier` does not."""
    if all(snapshot.changes is None for snapshot in snapshots.values()):
        return []
    return [snapshot for snapshot in snapshots.values() if not snapshot.is_append]


def _keeps_parent(snapshot: SnapshotFacts, snapshots: Mapping[int, SnapshotFacts]) -> bool:
    """The oldest retained snapshot counts for itself: its delete files may be of snapshots that have expired."""
    parent = snapshots.get(snapshot.parent_snapshot_id or 0)
    return snapshot.is_append or (snapshot.keeps_data and parent is not None and parent.parent_snapshot_id in snapshots)


def last_change_ms(table: Table) -> int:
    """The time of the table's newest change, by the committer's clock."""
    log = table.metadata.snapshot_log
    return max(table.metadata.last_updated_ms, log[-1].timestamp_ms if log else 0)


def _branch_history(table: Table, branch: str, snapshots: Mapping[int, SnapshotFacts]) -> BranchHistory:
    walk = view_table(table, SinkKey("audit", branch)).ancestry()
    ancestry = tuple(snapshots[snapshot.snapshot_id] for snapshot in walk)
    steps: dict[SinkKey, list[Step]] = defaultdict(list)
    for snapshot in reversed(ancestry):
        mark = snapshot.mark or _picked_mark(snapshot, snapshots)
        if mark is not None:
            steps[mark.key].append(Step(mark, snapshot))
    oldest = min((snapshot.sequence_number or 0 for snapshot in ancestry), default=0)
    blind = frozenset(snapshot.snapshot_id for snapshot in ancestry if _is_blind(snapshot, snapshots))
    return BranchHistory(branch, ancestry, oldest <= 1, {key: tuple(found) for key, found in steps.items()}, blind)


def _picked_mark(snapshot: SnapshotFacts, snapshots: Mapping[int, SnapshotFacts]) -> Mark | None:
    source = snapshots.get(snapshot.picked_from or 0)
    return None if source is None else source.mark


def _is_blind(snapshot: SnapshotFacts, snapshots: Mapping[int, SnapshotFacts]) -> bool:
    return snapshot.picked_from is not None and snapshot.picked_from not in snapshots and snapshot.mark is None
