"""What is true of a table with a key: what the snapshots under its head do, applied to a dictionary."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import LongType

from lakesink_protocol.errors import Reason
from lakesink_protocol.quality import REPLAY
from lakesink_protocol.row_changes import ChangeCounts, Operation, counts_in
from proof.changes import Fold, RowChange
from proof.content import CHANGES, LARGE_SIZE, REST, SIZE, Content
from proof.oracle import Broken, Key, Promise, Rows, rows_once
from proof.simulator.beside import judge_values
from proof.simulator.dead_letters import name_of as name_of_letters
from proof.simulator.keyed_contents import KeyedContents
from proof.simulator.keyed_engine import Deed
from proof.simulator.keyed_files import whole_rows
from proof.simulator.spark import Asked
from proof.simulator.truth import Landed, Name, State, Truth, name_of


@dataclass(eq=False)
class KeyedTruth(Truth):
    """Watches the server of a table with a key.

    Attributes:
        content: What the rows of the source are.
        deeds: What other writers' snapshots do.
        idle: Batches that changed no row when they landed last, and put none aside: all their deletes were absent or
            late. Once they are rolled back and expiry has cut the path to them, the table is as if they had landed, and
            that is all that can be known. The same is true of empty batches where rows are appended.
    """

    content: Content = field(kw_only=True)
    deeds: dict[int, Deed] = field(default_factory=dict)
    idle: dict[Name, Asked] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.contents: KeyedContents = KeyedContents(self.store, self.broken)

    def expected_of(self, path: Sequence[Landed]) -> Rows:
        """The live rows after these snapshots."""
        return self._fold(path).rows

    def expected_at_end(self, source: Rows) -> tuple[Rows, Rows]:  # noqa: ARG002 - what its rows have left
        """The live rows, others' too, and those that are aside; see `Truth`."""
        aside = sum((landed.aside for landed in self.newest.path), Counter[Key]())
        return self.expected_of(self.newest.path) + aside, Counter()

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
        said = snapshot.summary.additional_properties if snapshot.summary else {}
        if said.get("lakesink.sink-id", "").startswith(REPLAY):
            keys = self.beside.replayed(said["lakesink.sink-id"], int(said["lakesink.batch-id"]))
            self.deeds[snapshot.snapshot_id] = Deed(replayed=tuple(map(self.content.replayed, keys)))
            return Landed(snapshot.snapshot_id, snapshot.parent_snapshot_id, None, Counter())
        landed = super()._read(snapshot, metadata)
        if landed.asked is not None:
            self.idle.pop(name_of(landed.asked), None)
            files, older = (self._files(metadata, at) for at in (snapshot.snapshot_id, snapshot.parent_snapshot_id))
            if files == older and not landed.aside:
                self.idle[name_of(landed.asked)] = landed.asked
        return landed

    def _files(self, metadata: TableMetadata, snapshot_id: int | None) -> set[str]:
        return {file.path for file in self.contents.stated(metadata, snapshot_id)}

    def _fold(self, path: Sequence[Landed]) -> Fold:
        assert self.content.changing is not None
        fold = Fold(self.content.changing.has_sequence)
        for landed in path:
            deed = self.deeds.get(landed.snapshot_id, Deed())
            fold.apply(self._changes_of(landed))
            for key in deed.removed:
                fold.remove(key)
            for change in deed.inserted:
                fold.insert(change)
        return fold

    def _judge(self, state: State) -> list[Broken]:
        return super()._judge(state) + self._judge_batch(state)

    def _judge_batch(self, state: State) -> list[Broken]:
        """A batch or replay at the head counts its changes as they were; its delete files replace older ones."""
        landed = state.path[-1] if state.path else None
        changes = [] if landed is None else self._changes_of(landed)
        if landed is None or (landed.asked is None and not changes):
            return []
        metadata = state.version.metadata
        snapshot = metadata.snapshot_by_id(landed.snapshot_id)
        assert snapshot is not None
        stated = counts_in(snapshot.summary.additional_properties if snapshot.summary else {})
        right = self._fold(state.path[:-1]).apply(changes)
        self.counts += Counter({name: getattr(right, name) for name in ChangeCounts.__slots__})
        broken = self.contents.judge_deletes(metadata, snapshot)
        if stated != right:
            broken.append(Broken(Promise.CHANGES_ARE_COUNTED, f"{stated} is said of {right}"))
        if landed.asked is None and self.content.on_absent == "fail" and right.inserted:
            broken.append(Broken(Promise.DECISIONS_ARE_RIGHT, "a replay brings rows back that may have been deleted"))
        return broken

    def is_absent(self, state: State, keys: Iterable[Key]) -> bool:
        """The repaired changes of these rows would insert some, in this state of the table."""
        return self._fold(state.path).apply(map(self.content.replayed, keys)).inserted > 0

    @property
    def undid_replays(self) -> bool:
        """A replay landed, and is not under the head any more."""
        there = {landed.snapshot_id for landed in self.newest.path}
        return any(deed.replayed and snapshot_id not in there for snapshot_id, deed in self.deeds.items())

    def judge_replays(self) -> list[Broken]:
        """Each row that was put aside has been replayed, once."""
        of_replays = (self.deeds.get(landed.snapshot_id, Deed()).replayed for landed in self.newest.path)
        replayed = Counter(change.row for changes in of_replays for change in changes)
        return rows_once(replayed, sum((landed.aside for landed in self.newest.path), Counter[Key]()))

    def _changes_of(self, landed: Landed) -> Sequence[RowChange]:
        if landed.asked is not None:
            return self.content.changes_of(landed.asked.rows)
        return self.deeds.get(landed.snapshot_id, Deed()).replayed

    def _judge_columns(self, metadata: TableMetadata, snapshot: Snapshot) -> list[Broken]:
        """What a batch with features has told of its changes, and no column is there that no document has brought."""
        content, landed = self.content, self._landed[snapshot.snapshot_id]
        if not content.has_features or landed.asked is None:
            return []
        number = snapshot.sequence_number
        stated = self.contents.stated(metadata, snapshot.snapshot_id)
        new = [one.path for one in stated if one.is_data and one.file_sequence_number == number]
        rows = [row for path in new if path in self.store.files for row in whole_rows(self.store.files[path].read())]
        changes = content.changes_of(landed.asked.rows)
        by_change = {(change.row, change.key): change for change in changes if change.operation is not Operation.DELETE}
        wanted = [by_change[(row["partition"], row["offset"]), row["id"]] for row in rows]
        assert content.changing is not None
        rows_asked = [row for asked in self.asked.values() for row in asked.rows]
        came = [content.row(change) for row in rows_asked for change in content.changing.of(row)]
        names = {*metadata.schema().column_names}.difference(*came, CHANGES.names, [SIZE, REST])
        if metadata.schema().find_type(SIZE) == LongType() and not any(one[SIZE] == LARGE_SIZE for one in came):
            names.add(SIZE)
        broken = [Broken(Promise.EVERY_COLUMN_IS_THERE, f"{name} came from nowhere") for name in sorted(names)]
        application, _ = name_of_letters(landed.sink, self.branch, name_of(landed.asked))
        broken += self.beside.judge(landed.asked, content, landed.sink[1], application)
        aside = Counter(filter(content.is_unfit, landed.asked.rows))
        broken += rows_once(landed.aside, aside)
        return broken + judge_values(rows, [content.row(change) for change in wanted])
