"""What is true of the table, whatever it still shows: every snapshot that ever was, and what each stood on.

The product sees metadata that expiry cuts and catalogs that answer with old states. This book is kept from outside,
sees every state when it comes to be, and can say whether a state, a skip or a refusal was right.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    read_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from lakesink_protocol.errors import Reason
from proof.oracle import Broken, Promise, Rows, rows_once
from proof.simulator.catalog import Version
from proof.simulator.spark import Asked
from proof.simulator.store import SimulatedIO, SimulatedStore

Name = tuple[str, int, str]
"""Query, batch id and fingerprint: what a batch is known by."""


@dataclass(frozen=True, slots=True)
class Landed:
    """One snapshot that is, or was, in the table.

    Attributes:
        snapshot_id: Its id.
        parent_id: What it truly stands on.
        asked: The stream's batch in it; None in others' snapshots.
        foreign: Rows that others added by it.
    """

    snapshot_id: int
    parent_id: int | None
    asked: Asked | None
    foreign: Rows


@dataclass(frozen=True, slots=True)
class State:
    """One state of the table, as it truly was.

    Attributes:
        version: What it showed.
        path: Snapshots under the head, oldest first.
        entry: The stream's newest batch that landed, be it rolled back since; None before the first.
        tables: How many tables of this name there have been.
    """

    version: Version
    path: tuple[Landed, ...]
    entry: Landed | None
    tables: int

    @property
    def batches(self) -> list[Asked]:
        """The stream's batches under the head, oldest first."""
        return [landed.asked for landed in self.path if landed.asked is not None]

    @property
    def rolled_back(self) -> bool:
        """The newest batch that landed is not under the head any more."""
        return self.entry is not None and self.entry not in self.path

    def holds(self, asked: Asked) -> bool:
        """This very batch is under the head."""
        return name_of(asked) in map(name_of, self.batches)

    def shows(self, asked: Asked) -> bool:
        """It is under the head, and expiry has left its snapshot and the path to it."""
        kept = {snapshot.snapshot_id for snapshot in self.version.metadata.snapshots}
        for landed in reversed(self.path):
            if landed.snapshot_id not in kept:
                return False
            if landed.asked is not None and name_of(landed.asked) == name_of(asked):
                return True
        return False


def name_of(asked: Asked) -> Name:
    """What a batch is known by."""
    batch = asked.batch
    return batch.query_id, batch.batch_id, batch.fingerprint


@dataclass(eq=False)
class Truth:
    """Watches the server.

    Attributes:
        store: What is stored.
        branch: Branch that the stream writes.
        ledger_lost: True from when somebody has removed the ledger's entry until another is written.
        without_ledger: States in which that was so.
        asked: Every batch that a query ever asked for.
        foreign: Rows that others are about to add, by the id of their snapshot.
        states: Every state, by the location of its metadata.
        broken: What was found to be wrong.
        operator_at_work: True while somebody moves the head by hand.
    """

    store: SimulatedStore
    branch: str = "main"
    ledger_lost: bool = False
    without_ledger: set[str] = field(default_factory=set)
    asked: dict[Name, Asked] = field(default_factory=dict)
    foreign: dict[int, Rows] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    broken: list[Broken] = field(default_factory=list)
    operator_at_work: bool = False
    _landed: dict[int, Landed] = field(default_factory=dict)
    _newest: State | None = None
    _made_ms: int = 0
    _files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _columns_ever: set[int] = field(default_factory=set)

    def note(self, version: Version) -> None:
        """Take note of a new state, and judge it."""
        before = self._newest
        same = before is not None and before.version.metadata.table_uuid == version.metadata.table_uuid
        entry = before.entry if before is not None and same else None
        for snapshot in version.metadata.snapshots:
            if snapshot.snapshot_id not in self._landed:
                landed = self._landed[snapshot.snapshot_id] = self._read(snapshot)
                if landed.asked is not None:
                    entry, self.ledger_lost = landed, False
                    self.broken += self._judge_columns(version.metadata, snapshot)
        self._columns_ever |= ids_of(version.metadata.schema())
        tables = (before.tables if before is not None else 0) + (0 if same else 1)
        self._made_ms = self._made_ms if same else self.store.world.now_ms
        self._newest = State(version, self.path(version.metadata, self.branch), entry, tables)
        self.states[version.location] = self._newest
        if self.ledger_lost:
            self.without_ledger.add(version.location)
        self.broken += self._judge(self._newest)
        if before is not None and same and not self.operator_at_work and len(before.batches) > len(self.newest.batches):
            self.broken.append(Broken(Promise.READERS_NEVER_GO_BACK, f"from {len(before.batches)} batches"))

    def ask(self, asked: Asked) -> None:
        """A query is about to ask for a batch."""
        self.asked[name_of(asked)] = asked

    def refers_to(self, location: str) -> bool:
        """A retained snapshot refers to a file."""
        return location in self.reachable(self.newest.version.metadata)

    def was_there(self, snapshot_id: int) -> bool:
        """The snapshot is, or was, in the table."""
        return snapshot_id in self._landed

    @property
    def newest(self) -> State:
        """The table as it is."""
        assert self._newest is not None
        return self._newest

    def rows(self, metadata: TableMetadata, branch: str) -> Rows:
        """Rows that a reader of a branch finds; what it cannot read is noted as broken."""
        found: Rows = Counter()
        for path in self.files(metadata, head_of(metadata, branch)):
            stored = self.store.files.get(path)
            if stored is None:
                self.broken.append(Broken(Promise.EVERY_FILE_IS_THERE, path))
            elif stored.rows is None:
                self.broken.append(Broken(Promise.EVERY_FILE_IS_AS_STATED, f"{path} is torn"))
            else:
                found += stored.rows
        return found

    def files(self, metadata: TableMetadata, snapshot_id: int | None) -> list[str]:
        """Live data files of a snapshot."""
        return [path for manifest in self.manifests(metadata, snapshot_id) for path in self._data_files(manifest)]

    def manifests(self, metadata: TableMetadata, snapshot_id: int | None) -> tuple[str, ...]:
        """Manifests of a snapshot; empty for no snapshot."""
        snapshot = metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
        return () if snapshot is None else self._once(snapshot.manifest_list, self._listed)

    def reachable(self, metadata: TableMetadata) -> set[str]:
        """Everything that retained snapshots refer to: manifest lists, manifests, data files."""
        found: set[str] = set()
        for snapshot in metadata.snapshots:
            manifests = self.manifests(metadata, snapshot.snapshot_id)
            found |= {snapshot.manifest_list, *manifests}
            found.update(path for manifest in manifests for path in self._data_files(manifest))
        return found

    def refusal_is_right(self, reason: Reason, asked: Asked, seen: Version) -> bool:
        """Protocol and history explain why this batch was refused, in the state that the driver saw."""
        if reason is Reason.TABLE_REPLACED:
            return self.newest.tables > 1
        if reason is Reason.BRANCH_MISSING:
            return self.branch != "main" and head_of(seen.metadata, self.branch) is None
        if reason in (Reason.LEDGER_LOST, Reason.UNKNOWN_HISTORY) and seen.location in self.without_ledger:
            return True
        return _EXPLAINED[reason](self.states[seen.location], asked)

    def _read(self, snapshot: Snapshot) -> Landed:
        said = snapshot.summary.additional_properties if snapshot.summary else {}
        asked = None
        if "lakesink.sink-id" in said:
            asked = self.asked[said["lakesink.query-id"], int(said["lakesink.batch-id"]), said["lakesink.fingerprint"]]
        foreign = self.foreign.get(snapshot.snapshot_id, Counter())
        return Landed(snapshot.snapshot_id, snapshot.parent_snapshot_id, asked, foreign)

    def path(self, metadata: TableMetadata, branch: str) -> tuple[Landed, ...]:
        """Snapshots under the head of a branch, oldest first, by true parentage."""
        found: list[Landed] = []
        head = head_of(metadata, branch)
        while head is not None:
            found.append(self._landed[head])
            head = found[-1].parent_id
        return tuple(reversed(found))

    def _judge(self, state: State) -> list[Broken]:
        batches = state.batches
        broken = [
            Broken(Promise.BATCHES_ARE_CONTIGUOUS, f"{name_of(after)[:2]} follows {name_of(before)[:2]}")
            for before, after in pairwise(batches)
            if before.end != after.start or not _numbered(before, after)
        ]
        if batches and any(batches[0].start):
            broken.append(Broken(Promise.BATCHES_ARE_CONTIGUOUS, f"the first batch starts at {batches[0].start}"))
        broken += rows_once(self.rows(state.version.metadata, self.branch), _brought(state.path))
        if self.branch != "main":
            broken += self._judge_main(state.version.metadata)
        return broken + self._judge_files(state.version.metadata)

    def _judge_columns(self, metadata: TableMetadata, snapshot: Snapshot) -> list[Broken]:
        """Each written column is in the snapshot's schema under its id, unless another writer has dropped it."""
        schemas = {schema.schema_id: schema for schema in metadata.schemas}
        broken = [] if len(schemas) == len(metadata.schemas) else ["two schemas have one id"]
        schema = schemas.get(snapshot.schema_id if snapshot.schema_id is not None else -1)
        present = {} if schema is None else {one.name: one.field_id for one in schema.fields}
        known = self._columns_ever | set(present.values())
        new = set(self.files(metadata, snapshot.snapshot_id)) - set(self.files(metadata, snapshot.parent_snapshot_id))
        for field_id, name in sorted({pair for path in new for pair in self.store.columns.get(path, ())}):
            if present.get(name, field_id) != field_id or field_id not in known:
                broken.append(f"column {name} ({field_id}) of {snapshot.snapshot_id} is lost")
        return [Broken(Promise.EVERY_COLUMN_IS_THERE, what) for what in broken]

    def _judge_files(self, metadata: TableMetadata) -> list[Broken]:
        """Nothing that was written for an earlier table of the name is committed to this one."""
        paths = self.files(metadata, head_of(metadata, self.branch))
        there = [path for path in paths if path in self.store.files]
        older = [path for path in there if self.store.files[path].created_ms < self._made_ms]
        return [Broken(Promise.DECISIONS_ARE_RIGHT, f"{path} is older than its table") for path in older]

    def _judge_main(self, metadata: TableMetadata) -> list[Broken]:
        """Another branch than the stream's has nothing of it."""
        others = tuple(landed for landed in self.path(metadata, "main") if landed.asked is None)
        return rows_once(self.rows(metadata, "main"), _brought(others))

    def _data_files(self, manifest: str) -> tuple[str, ...]:
        return self._once(manifest, self._entries)

    def _once(self, path: str, read: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
        """These files never change once they are referenced, so one look is enough; that is checked elsewhere."""
        if path not in self._files:
            try:
                self._files[path] = read(path)
            except Exception as error:  # noqa: BLE001 - however a file of metadata cannot be read
                self.broken.append(Broken(Promise.EVERY_FILE_IS_AS_STATED, f"{path}: {type(error).__name__}"))
                return ()
        return self._files[path]

    def _listed(self, path: str) -> tuple[str, ...]:
        return tuple(manifest.manifest_path for manifest in read_manifest_list(self._io.new_input(path)))

    def _entries(self, path: str) -> tuple[str, ...]:
        with AvroFile[ManifestEntry](
            self._io.new_input(path),
            MANIFEST_ENTRY_SCHEMAS[2],
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as entries:
            return tuple(entry.data_file.file_path for entry in entries if entry.status != ManifestEntryStatus.DELETED)

    @property
    def _io(self) -> SimulatedIO:
        return SimulatedIO(self.store, quiet=True)


def ids_of(schema: Schema) -> set[int]:
    """Field ids of the columns of a schema."""
    return {one.field_id for one in schema.fields}


def head_of(metadata: TableMetadata, branch: str) -> int | None:
    """Snapshot of a branch."""
    ref = metadata.refs.get(branch)
    return None if ref is None else ref.snapshot_id


def _brought(path: tuple[Landed, ...]) -> Rows:
    """All rows that these snapshots added."""
    found: Rows = Counter()
    for landed in path:
        found += landed.foreign
        found += landed.asked.rows if landed.asked is not None else Counter()
    return found


def _numbered(before: Asked, after: Asked) -> bool:
    """Batches of one query grow; another query begins at 0.

    They grow by one, but for an empty batch that was rolled back: once expiry has cut the path to it, that its rows are
    there, for it has none, is all that can be known, and no row is missing without it.
    """
    if before.batch.query_id != after.batch.query_id:
        return after.batch.batch_id == 0
    return after.batch.batch_id > before.batch.batch_id


def _entry(state: State) -> Asked:
    assert state.entry is not None
    assert state.entry.asked is not None
    return state.entry.asked


def _ahead(state: State, asked: Asked) -> int:
    return asked.batch.batch_id - _entry(state).batch.batch_id


def _same_query(state: State, asked: Asked) -> bool:
    return asked.batch.query_id == _entry(state).batch.query_id


def _in_place(state: State, asked: Asked) -> bool:
    """The stream's newest batch is under the head, or has no rows that could be, and this batch is of its query."""
    if state.entry is None or not _same_query(state, asked):
        return False
    return not state.rolled_back or not _entry(state).rows


def _changed(state: State, asked: Asked) -> bool:
    if not _in_place(state, asked):
        return False
    ahead, entry = _ahead(state, asked), _entry(state)
    return (ahead == 0 and name_of(asked) != name_of(entry)) or (ahead == 1 and asked.start != entry.end)


_EXPLAINED: dict[Reason, Callable[[State, Asked], bool]] = {
    Reason.ROLLED_BACK: lambda state, _: state.rolled_back,
    Reason.NEW_CHECKPOINT: lambda state, asked: (
        state.entry is not None and not state.rolled_back and not _same_query(state, asked)
    ),
    Reason.BATCH_CHANGED: _changed,
    Reason.REWOUND: lambda state, asked: (
        _in_place(state, asked) and _ahead(state, asked) < 0 and not state.shows(asked)
    ),
    Reason.GAP: lambda state, asked: _in_place(state, asked) and _ahead(state, asked) > 1,
    Reason.UNKNOWN_HISTORY: lambda state, asked: state.entry is None and asked.batch.batch_id > 0,
    Reason.LEDGER_LOST: lambda _, __: False,
    Reason.LEDGER_DAMAGED: lambda _, __: False,
    Reason.UNSUPPORTED: lambda _, __: False,
}
