"""Bugs of the decision: what the ledger says is not asked for, or not believed, or believed too much."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from lakesink_catalog.commit import batch_commit as commit
from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.decision import Decision
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.read import view
from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import MAIN_BRANCH, Batch, SinkKey
from lakesink_protocol.ledger import LedgerEntry, Mark, SnapshotLike, TableView, mark_of
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Commit, Refuse, Skip, Verdict
from proof.mutants.mutant import Focus, Patches, mutant
from proof.mutants.sending import without_tag


def _decide(patches: Patches, change: Callable[[Decision], Verdict]) -> None:
    """Every decision has another verdict."""

    def decide_on(self: FencedCommit, table: Table, batch: Batch) -> Decision:
        decision: Decision = real(self, table, batch)
        return replace(decision, verdict=change(decision))

    real = patches.put(FencedCommit, "decide_on", decide_on)


@mutant(
    "P2, P10: a batch that the ledger has is committed again.",
    seen_in="Paimon and early Hudi: a crash between the commit and Spark's own log",
    focus=Focus(actions=("kill", "kill", "kill"), seed=9),
    scenario="killed after the commit",
)
def no_dedupe(patches: Patches) -> None:
    """Nothing is ever skipped."""
    _decide(patches, lambda decision: Commit(0) if isinstance(decision.verdict, Skip) else decision.verdict)


@mutant(
    "P4: any batch id up to the ledger's counts as done, whatever query asks.",
    seen_in="Delta, Flink #18098, Hudi: a new checkpoint begins at 0, and its rows are lost in silence",
    focus=Focus(actions=("lose the checkpoint",)),
    scenario="the checkpoint is lost and the source cut otherwise",
)
def skip_by_the_highest_batch_id(patches: Patches) -> None:
    """One number is all that is compared."""

    def change(decision: Decision) -> Verdict:
        entry, batch = decision.situation.entry, decision.situation.batch
        return Commit(6) if entry is None or batch.batch_id > entry.batch_id else Skip(14, None)

    _decide(patches, change)


@mutant(
    "P4: same batch id is taken for same batch, whatever it reads.",
    seen_in="Iceberg's Spark sink: a checkpoint restored, other rows under the same id, silently skipped",
    focus=Focus(actions=("restore the checkpoint",)),
    scenario="the checkpoint is restored and the source cut otherwise",
)
def fingerprint_ignored(patches: Patches) -> None:
    """A changed batch is taken for the one that it replaces."""

    def change(decision: Decision) -> Verdict:
        if decision.verdict == Refuse(15, Reason.BATCH_CHANGED):
            return Skip(14, None)
        return Commit(16) if decision.verdict == Refuse(17, Reason.BATCH_CHANGED) else decision.verdict

    _decide(patches, change)


@mutant(
    "P2: what was written to a branch is looked for on main, where nothing is found.",
    seen_in="Iceberg's Spark sink",
    focus=Focus(actions=("kill", "kill", "kill"), branch="audited", seed=9),
    scenario="killed after the commit on a branch",
)
def ledger_of_main_read_for_a_branch(patches: Patches) -> None:
    """On a branch every batch is new."""
    _decide(patches, lambda decision: decision.verdict if decision.situation.key.branch == MAIN_BRANCH else Commit(6))


@mutant(
    "P3: a snapshot counts as committed if it exists; that the head does not stand on it any more is not seen.",
    seen_in="Delta #1813: the table rolled back, the checkpoint not",
    focus=Focus(actions=("roll back", "roll back")),
    scenario="rolled back with the checkpoint",
)
def mark_by_existence_not_ancestry(patches: Patches) -> None:
    """Every snapshot in the metadata is taken to be on the branch."""

    def entry_in_ancestry(self: Situation) -> bool:
        return self.entry is not None and self.entry.snapshot_id in self.view.snapshots

    def own_marks(self: Situation) -> Iterator[tuple[Mark, SnapshotLike]]:
        for snapshot in sorted(self.view.snapshots.values(), key=lambda one: -(one.sequence_number or 0)):
            mark = mark_of(snapshot.summary)
            if mark is not None and mark.key == self.key:
                yield mark, snapshot

    patches.put(Situation, "entry_in_ancestry", property(entry_in_ancestry))
    patches.put(Situation, "_own_marks", own_marks)


@mutant(
    "P3: the batch is remembered in its snapshot alone, and forgotten with it.",
    seen_in="Flink #5846, Iceberg's Spark sink: expired between crash and restart",
    focus=Focus(actions=("foreign append", "foreign append", "expire", "forget a commit"), seed=1),
    scenario="expired between crash and restart",
)
def mark_only_in_the_snapshot(patches: Patches) -> None:
    """No ledger property, no tag; where no mark is found there was no batch."""
    without_tag(patches)

    def change(*given: Any) -> Change:
        made: Change = real_change(*given)
        return replace(made, properties={})

    def view_metadata(metadata: TableMetadata, io: FileIO, key: SinkKey) -> TableView:
        seen: TableView = real_view(metadata, io, key)
        return replace(seen, entry=_newest(seen, key))

    real_change = patches.put(commit, "batch_change", change)
    real_view = patches.put(view, "view_metadata", view_metadata)
    patches.put(commit, "view_metadata", view_metadata)
    unknown = Refuse(5, Reason.UNKNOWN_HISTORY)
    _decide(patches, lambda decision: Commit(6) if decision.verdict == unknown else decision.verdict)


def _newest(seen: TableView, key: SinkKey) -> LedgerEntry | None:
    for snapshot in seen.ancestry():
        mark = mark_of(snapshot.summary)
        if mark is not None and mark.key == key:
            return LedgerEntry(
                batch_id=mark.ledger_batch_id,
                query_id=mark.query_id,
                fingerprint=mark.fingerprint,
                end=mark.end,
                snapshot_id=snapshot.snapshot_id,
                sequence_number=snapshot.sequence_number or 0,
                table_uuid=seen.table_uuid,
                offsets=mark.offsets,
            )
    return None


MUTANTS = (
    no_dedupe,
    skip_by_the_highest_batch_id,
    fingerprint_ignored,
    ledger_of_main_read_for_a_branch,
    mark_by_existence_not_ancestry,
    mark_only_in_the_snapshot,
)
