"""Others at the same table: a writer, a compactor, expiry as two libraries do it, an orphan cleaner, a reader."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
)
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import LongType

from lakesink_catalog.commit.prepared import SNAPSHOT_IDS
from lakesink_catalog.commit.request import branch_at, snapshot_time_ms
from lakesink_catalog.manifests.lists import manifests_under, write_list
from lakesink_catalog.manifests.write import write_batch_manifests
from lakesink_protocol.change import ContentFile
from proof.added_again import added_again
from proof.content import NEW_COLUMNS
from proof.oracle import Rows
from proof.simulator.catalog import SimulatedCatalog, SimulatedServer, Version
from proof.simulator.contents import head_of
from proof.simulator.store import SimulatedIO
from proof.simulator.truth import Truth
from proof.simulator.world import World

FOREIGN_PARTITION = 100
PASSING = "passing"


@dataclass(frozen=True, slots=True)
class Place:
    """What a commit is made for: the table as loaded, and the branch to move."""

    table: Table
    branch: str


def on_the_same_head(table: Table, branch: str, head: int | None) -> tuple[AssertTableUUID, AssertRefSnapshotId]:
    """What engines require of the table at their commit."""
    return AssertTableUUID(uuid=table.metadata.table_uuid), AssertRefSnapshotId(ref=branch, snapshot_id=head)


@dataclass(eq=False)
class Engine:
    """Another engine's hands: its requests are atomic and never lost; others may be quicker than it.

    Attributes:
        server: The catalog.
        truth: Told of foreign rows.
        appended: Rows that it has added so far.
    """

    server: SimulatedServer
    truth: Truth
    appended: int = 0
    done: Counter[str] = field(default_factory=Counter)

    @property
    def world(self) -> World:
        """Clock, chance and scheduler."""
        return self.server.store.world

    def fork(self) -> None:
        """Make the stream's branch, if it is not main: it needs a snapshot to begin with."""
        if self.truth.branch != "main":
            self.append("main")
            table = self._table()
            head = table.metadata.current_snapshot_id
            assert head is not None
            self.server.apply((), (branch_at(table, self.truth.branch, head),))

    def append(self, branch: str | None = None) -> None:
        """One snapshot with one or two rows of its own."""
        table, branch = self._table(), branch or self._branch()
        count = self.world.random.randrange(1, 3)
        rows: Rows = Counter((FOREIGN_PARTITION, self.appended + number) for number in range(count))
        self.appended += count
        file = self._data_file(table, rows)
        self.world.pause()
        kept = manifests_under(table.io, table.snapshot_by_name(branch))
        self._commit(Place(table, branch), Operation.APPEND, rows, [file], kept)

    def compact(self) -> None:
        """All rows in one new file."""
        table, branch = self._table(), self._branch()
        rows = self.truth.rows(table.metadata, branch)
        if not rows:
            return
        file = self._data_file(table, rows)
        self.world.pause()
        self._commit(Place(table, branch), Operation.REPLACE, Counter(), [file], [])

    def add_again(self) -> None:
        """The branch's files under their old sequence numbers, as a rewrite of data files leaves them."""
        table = self._table()
        if table.snapshot_by_name(self.truth.branch) is None:
            return
        snapshot_id = self.world.random.choice(SNAPSHOT_IDS)
        request = added_again(table, self.truth.branch, snapshot_id, self.world.now_ms)
        self.truth.foreign[snapshot_id] = Counter()
        try:
            self.server.apply(*request)
        except (CommitFailedException, ValueError):
            self._did("adding again in vain", "somebody was quicker")
        else:
            self._did("adding again", "adds all files again under their old sequence numbers")

    def expire(self) -> None:
        """Forget snapshots that no branch and no tag holds, but a few; then remove the files that only they had."""
        metadata = self._table().metadata
        held = {ref.snapshot_id for ref in metadata.refs.values()}
        free = [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id not in held]
        gone = free[: len(free) - self.world.random.randrange(2)]
        if not gone:
            return
        before = self.truth.reachable(metadata)
        java = self.world.random.random() < 0.5
        if java:
            self._expire_like_java(gone)
        else:
            self.server.apply((), (RemoveSnapshotsUpdate(snapshot_ids=gone),))
        self._did("expiry", f"expires {len(gone)} snapshots as {'Java' if java else 'PyIceberg'} does")
        for location in sorted(before - self.truth.reachable(self.truth.newest.version.metadata)):
            self.world.pause()
            self._remove([location])

    def clean(self, age_limit_ms: int) -> None:
        """Remove what is old and unreferenced, first listed and then removed."""
        reachable = self.truth.all_reachable()
        limit = self.world.now_ms - age_limit_ms
        orphans = [
            location
            for location, stored in self.server.store.files.items()
            if stored.created_ms < limit and location not in reachable and not location.endswith(".metadata.json")
        ]
        if orphans:
            self._did("orphan cleaning", f"removes {len(orphans)} orphans")
        for location in orphans:
            self.world.pause()
            self._remove([location])

    def evolve(self) -> None:
        """Add a column, drop one, or rename one and rename it back: that takes the next schema id."""
        random = self.world.random
        name = random.choice(NEW_COLUMNS)
        if name not in self._schema().column_names:
            self._change_schema(lambda update: update.add_column(name, LongType()), f"adds {name}")
        elif random.random() < 0.5:
            self._change_schema(lambda update: update.delete_column(name), f"drops {name}")
        else:
            self._change_schema(lambda update: update.rename_column(name, PASSING), f"renames {name}")
            self._change_schema(lambda update: update.rename_column(PASSING, name), f"renames {name} back")

    def _schema(self) -> Schema:
        current = self.server.current
        assert current is not None
        return current.metadata.schema()

    def _change_schema(self, change: Callable[[UpdateSchema], object], story: str) -> None:
        current = self.server.current
        assert current is not None
        staged = self._table_of(current).transaction()
        with staged.update_schema() as update:
            change(update)
        after = staged.table_metadata
        parts = ("schemas", "current_schema_id", "last_column_id")
        self.truth.schema_at_work = True
        self.server.edit(**{part: getattr(after, part) for part in parts})
        self.truth.schema_at_work = False
        self._did("foreign schema change", story)

    def _expire_like_java(self, gone: Sequence[int]) -> None:
        """Children keep the id of a parent that is not there any more."""
        current = self.server.current
        assert current is not None
        metadata = current.metadata
        self.server.edit(
            snapshots=[snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in gone],
            snapshot_log=[entry for entry in metadata.snapshot_log if entry.snapshot_id not in gone],
        )

    def _commit(
        self, at: Place, operation: Operation, rows: Rows, files: Sequence[ContentFile], kept: list[ManifestFile]
    ) -> None:
        table, branch = at.table, at.branch
        snapshot_id = self.world.random.choice(SNAPSHOT_IDS)
        written = write_batch_manifests(table, files, schema=table.schema(), snapshot_id=snapshot_id)
        head = head_of(table.metadata, branch)
        sequence_number = getattr(table.metadata, "last_sequence_number", 0) + 1  # version 1 has none
        manifests = [*(manifest.to_manifest_file() for manifest in written), *kept]
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=head,
            sequence_number=sequence_number,
            timestamp_ms=snapshot_time_ms(table, self.world.now_ms),
            manifest_list=write_list(
                table, manifests, snapshot_id=snapshot_id, parent_id=head, sequence_number=sequence_number
            ),
            summary=Summary(operation),
            schema_id=table.metadata.current_schema_id,
        )
        self.truth.foreign[snapshot_id] = rows
        updates = (AddSnapshotUpdate(snapshot=snapshot), branch_at(table, branch, snapshot_id))
        try:
            self.server.apply(on_the_same_head(table, branch, head), updates)
        except (CommitFailedException, ValueError):
            self.appended -= sum(rows.values())
            self._did(f"{operation.value} in vain", "somebody was quicker")
        else:
            self._did(f"foreign {operation.value}", f"commits {sum(rows.values())} rows")

    def _branch(self) -> str:
        return self.world.random.choice(["main", self.truth.branch])

    def _data_file(self, table: Table, rows: Rows) -> ContentFile:
        path = f"{table.location()}/data/others-{uuid.uuid4()}.parquet"
        content = repr(sorted(rows)).encode()
        self.server.store.set(path, content, rows)
        count = sum(rows.values())
        return ContentFile(path, 0, (), count, len(content), {}, {}, {}, {}, {}, {}, ())

    def _remove(self, locations: Iterator[str] | Sequence[str] | set[str]) -> None:
        for location in sorted(locations):
            if location in self.server.store.files:
                self.server.store.remove(location)

    def _table(self) -> Table:
        self.world.pause()
        version = self.server.current
        assert version is not None
        return self._table_of(version)

    def _table_of(self, version: Version) -> Table:
        io = SimulatedIO(self.server.store, quiet=True)
        return Table(("demo", "events"), version.metadata, version.location, io, SimulatedCatalog(self.server))

    def _did(self, what: str, story: str) -> None:
        self.done[what] += 1
        self.world.tell(story)
