"""What is true of a table with a key: what the snapshots under its head do, applied to a dictionary."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from lakesink_protocol.errors import Reason
from lakesink_protocol.row_changes import ChangeCounts, counts_in
from proof.changes import Changing, Fold, RowChange
from proof.oracle import Broken, Key, Promise, Rows
from proof.simulator.keyed_contents import KeyedContents
from proof.simulator.keyed_engine import Deed
from proof.simulator.spark import Asked
from proof.simulator.truth import Landed, Name, State, Truth, name_of


@dataclass(eq=False)
class KeyedTruth(Truth):
    """Watches the server of a table with a key.

    Attributes:
        changing: What the rows of the source are.
        deeds: What other writers' snapshots do.
        idle: Batches that changed no row when they landed last: all their deletes were absent or late. Once they are
            rolled back and expiry has cut the path to them, the table is as if they had landed, and that is all that
            can be known. The same is true of empty batches where rows are appended.
    """

    changing: Changing = field(kw_only=True)
    deeds: dict[int, Deed] = field(default_factory=dict)
    idle: dict[Name, Asked] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.contents: KeyedContents = KeyedContents(self.store, self.broken)

    def changes_of(self, asked: Asked) -> list[RowChange]:
        """The changes of a batch."""
        return [change for row in asked.rows for change in self.changing.of(row)]

    def expected_of(self, path: Sequence[Landed]) -> Rows:
        """The live rows after these snapshots."""
        return self._fold(path).rows

    def expected_at_end(self, source: Rows) -> tuple[Rows, Rows]:  # noqa: ARG002 - what its rows have left
        """The live rows, others' too; see `Truth`."""
        return self.expected_of(self.newest.path), Counter()

    def judge_end(self, source: Rows) -> list[Broken]:
        """Every row of the source is in a batch."""
        there = sum((asked.rows for asked in [*self.newest.batches, *self.idle.values()]), Counter[Key]())
        missing = source - there
        if not missing:
            return []
        return [Broken(Promise.NO_ROW_IS_LOST, f"{missing.total()} rows of the source are in no batch")]

    def may_be_skipped(self, state: State, asked: Asked) -> bool:
        """It is under the head, or has changed nothing."""
        return super().may_be_skipped(state, asked) or name_of(asked) in self.idle

    def _explained(self, reason: Reason, state: State, asked: Asked) -> bool:
        """It explains a refusal as it is, or as if the newest batch, which has changed nothing, were under the head."""
        entry = state.entry
        if entry is not None and entry.asked is not None and name_of(entry.asked) in self.idle:
            as_if = replace(state, path=(*state.path, entry))
            if super()._explained(reason, as_if, asked):
                return True
        return super()._explained(reason, state, asked)

    def _begins(self, first: Asked) -> bool:
        """Only batches that have changed nothing are missing before it."""
        return any(
            super(KeyedTruth, self)._begins(one) and (one is first or self._follows(one, first))
            for one in (first, *self.idle.values())
        )

    def _follows(self, before: Asked, after: Asked) -> bool:
        """Only batches that have changed nothing are missing between these two."""
        reached, unseen = [before], dict(self.idle)
        for one in reached:
            if super()._follows(one, after):
                return True
            next_ones = [name for name, idle in unseen.items() if super(KeyedTruth, self)._follows(one, idle)]
            reached += map(unseen.pop, next_ones)
        return False

    def _read(self, snapshot: Snapshot, metadata: TableMetadata) -> Landed:
        landed = super()._read(snapshot, metadata)
        if landed.asked is not None:
            self.idle.pop(name_of(landed.asked), None)
            files, older = (self._files(metadata, at) for at in (snapshot.snapshot_id, snapshot.parent_snapshot_id))
            if files == older:
                self.idle[name_of(landed.asked)] = landed.asked
        return landed

    def _files(self, metadata: TableMetadata, snapshot_id: int | None) -> set[str]:
        return {file.path for file in self.contents.stated(metadata, snapshot_id)}

    def _fold(self, path: Sequence[Landed]) -> Fold:
        fold = Fold(self.changing.has_sequence)
        for landed in path:
            if landed.asked is not None:
                fold.apply(self.changes_of(landed.asked))
                continue
            deed = self.deeds.get(landed.snapshot_id, Deed())
            for key in deed.removed:
                fold.remove(key)
            for change in deed.inserted:
                fold.insert(change)
        return fold

    def _judge(self, state: State) -> list[Broken]:
        return super()._judge(state) + self._judge_batch(state)

    def _judge_batch(self, state: State) -> list[Broken]:
        """The batch at the head counts its changes as they were, and its delete files replace older ones."""
        landed = state.path[-1] if state.path else None
        if landed is None or landed.asked is None:
            return []
        metadata = state.version.metadata
        snapshot = metadata.snapshot_by_id(landed.snapshot_id)
        assert snapshot is not None
        stated = counts_in(snapshot.summary.additional_properties if snapshot.summary else {})
        right = self._fold(state.path[:-1]).apply(self.changes_of(landed.asked))
        self.counts += Counter({name: getattr(right, name) for name in ChangeCounts.__slots__})
        broken = self.contents.judge_deletes(metadata, snapshot)
        if stated != right:
            broken.append(Broken(Promise.CHANGES_ARE_COUNTED, f"{stated} is said of {right}"))
        return broken

    def _judge_columns(self, metadata: TableMetadata, snapshot: Snapshot) -> list[Broken]:  # noqa: ARG002 - fixed ones
        return []
