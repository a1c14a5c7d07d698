"""What is true of the table, whatever it still shows: every snapshot that ever was, and what each stood on.

The product sees metadata that expiry cuts and catalogs that answer with old states. This book is kept from outside,
sees every state when it comes to be, and can say whether a state, a skip or a refusal was right.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from lakesink_protocol.errors import Reason
from proof.oracle import Broken, Key, Promise, Rows, rows_once
from proof.simulator.beside import Beside
from proof.simulator.catalog import Version
from proof.simulator.contents import Contents, head_of
from proof.simulator.dead_letters import DeadLetters
from proof.simulator.spark import Asked
from proof.simulator.store import SimulatedStore

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
        sink: Table and sink id of the batch.
        aside: Rows of the batch that were dead letters when it landed.
    """

    snapshot_id: int
    parent_id: int | None
    asked: Asked | None
    foreign: Rows
    sink: tuple[str, str] = ("", "")
    aside: Rows = field(default_factory=Counter)

    @property
    def rows(self) -> Rows:
        """Rows that it has to have added."""
        return self.foreign if self.asked is None else self.asked.rows - self.aside


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
        letters: What is true of the table of dead letters.
        branch: Branch that the stream writes.
        ledger_lost: True from when somebody has removed the ledger's entry until another is written.
        without_ledger: States in which that was so.
        asked: Every batch that a query ever asked for.
        foreign: Rows that others are about to add, by the id of their snapshot.
        states: Every state, by the location of its metadata.
        broken: What was found to be wrong.
        operator_at_work: True while somebody moves the head by hand.
        schema_at_work: True while another engine changes the schema.
        evolutions: How often a batch's commit changed the schema.
        counts: What became of the changes by key of the batches that landed; nothing where rows are only appended.
    """

    store: SimulatedStore
    letters: DeadLetters
    branch: str = "main"
    ledger_lost: bool = False
    without_ledger: set[str] = field(default_factory=set)
    asked: dict[Name, Asked] = field(default_factory=dict)
    foreign: dict[int, Rows] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    broken: list[Broken] = field(default_factory=list)
    operator_at_work: bool = False
    schema_at_work: bool = False
    evolutions: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    _landed: dict[int, Landed] = field(default_factory=dict)
    _newest: State | None = None
    _made_ms: int = 0
    _columns_ever: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.contents = Contents(self.store, self.broken)
        self.beside = Beside(self.store, self.broken)

    def note(self, version: Version) -> None:
        """Take note of a new state, and judge it."""
        before = self._newest
        same = before is not None and before.version.metadata.table_uuid == version.metadata.table_uuid
        entry = before.entry if before is not None and same else None
        batches = 0
        for snapshot in version.metadata.snapshots:
            if snapshot.snapshot_id not in self._landed:
                landed = self._landed[snapshot.snapshot_id] = self._read(snapshot, version.metadata)
                if landed.asked is not None:
                    entry, self.ledger_lost, batches = landed, False, batches + 1
                    self.broken += self.letters.judge(landed.asked.rows, landed.aside)
                    self.broken += self._judge_columns(version.metadata, snapshot)
        if before is not None and same:
            self._judge_evolution(before.version.metadata, version.metadata, batches)
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
        self.letters.ask(name_of(asked))

    def refers_to(self, location: str) -> bool:
        """A retained snapshot refers to a file."""
        return location in self.all_reachable()

    def all_reachable(self) -> set[str]:
        """Everything that retained snapshots of the table, and of those beside it, refer to."""
        return self.reachable(self.newest.version.metadata) | self.letters.reachable() | self.beside.reachable()

    def may_be_skipped(self, state: State, asked: Asked) -> bool:
        """A driver may count this batch as committed."""
        return state.holds(asked)

    def moved(self, sink: tuple[str, str]) -> set[Key]:
        """Rows that one batch of a sink had in the table and another one aside; see `Landed.sink`."""
        landed = [one for one in self._landed.values() if one.sink == sink]
        return {key for one in landed for key in one.rows} & {key for one in landed for key in one.aside}

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
        return self.contents.rows(metadata, head_of(metadata, branch))

    def reachable(self, metadata: TableMetadata) -> set[str]:
        """Everything that retained snapshots refer to: manifest lists, manifests, data files."""
        return self.contents.reachable(metadata)

    def refusal_is_right(self, reason: Reason, asked: Asked, seen: Version) -> bool:
        """Protocol and history explain why this batch was refused, in the state that the driver saw."""
        if reason is Reason.TABLE_REPLACED:
            return self.newest.tables > 1
        if reason is Reason.BRANCH_MISSING:
            return self.branch != "main" and head_of(seen.metadata, self.branch) is None
        if reason in (Reason.LEDGER_LOST, Reason.UNKNOWN_HISTORY) and seen.location in self.without_ledger:
            return True
        return self._explained(reason, self.states[seen.location], asked)

    def expected_of(self, path: Sequence[Landed]) -> Rows:
        """All rows that these snapshots added."""
        found: Rows = Counter()
        for landed in path:
            found += landed.rows
        return found

    def expected_at_end(self, source: Rows) -> tuple[Rows, Rows]:
        """Rows that must be in the table at the end, or aside: the stream's, and others'."""
        return source, sum((landed.foreign for landed in self.newest.path), Counter[tuple[int, int]]())

    def judge_end(self, source: Rows) -> list[Broken]:  # noqa: ARG002 - its rows are looked for one by one
        """What is wrong with the batches at the end, beside their rows."""
        return []

    def _read(self, snapshot: Snapshot, metadata: TableMetadata) -> Landed:
        said = snapshot.summary.additional_properties if snapshot.summary else {}
        ids = snapshot.snapshot_id, snapshot.parent_snapshot_id
        if "lakesink.sink-id" not in said:
            return Landed(*ids, None, self.foreign.get(snapshot.snapshot_id, Counter()))
        asked = self.asked[said["lakesink.query-id"], int(said["lakesink.batch-id"]), said["lakesink.fingerprint"]]
        sink = str(metadata.table_uuid), said["lakesink.sink-id"]
        return Landed(*ids, asked, Counter(), sink, self.letters.landing(sink, self.branch, name_of(asked)))

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
            if not self._follows(before, after)
        ]
        if batches and not self._begins(batches[0]):
            broken.append(Broken(Promise.BATCHES_ARE_CONTIGUOUS, f"the first batch starts at {batches[0].start}"))
        broken += rows_once(self.rows(state.version.metadata, self.branch), self.expected_of(state.path))
        if self.branch != "main":
            broken += self._judge_main(state.version.metadata)
        return broken + self._judge_files(state.version.metadata)

    def _explained(self, reason: Reason, state: State, asked: Asked) -> bool:
        """The history of a state explains a refusal."""
        return _EXPLAINED[reason](state, asked)

    def _begins(self, first: Asked) -> bool:
        """No batch is missing before this one."""
        return not any(first.start)

    def _follows(self, before: Asked, after: Asked) -> bool:
        """No batch is missing between these two."""
        return before.end == after.start and _numbered(before, after)

    def _judge_columns(self, metadata: TableMetadata, snapshot: Snapshot) -> list[Broken]:
        """Each written column is in the snapshot's schema under its id, unless another writer has dropped it."""
        schemas = {schema.schema_id: schema for schema in metadata.schemas}
        broken = [] if len(schemas) == len(metadata.schemas) else ["two schemas have one id"]
        schema = schemas.get(snapshot.schema_id if snapshot.schema_id is not None else -1)
        present = {} if schema is None else {one.name: one.field_id for one in schema.fields}
        known = self._columns_ever | set(present.values())
        new = self.contents.added(metadata, snapshot.snapshot_id, snapshot.parent_snapshot_id)
        lost = [value for path in new for value in self.store.lost.get(path, ())]
        broken += [f"{value} in {snapshot.snapshot_id} is lost" for value in lost]
        for field_id, name in sorted({pair for path in new for pair in self.store.columns.get(path, ())}):
            if present.get(name, field_id) != field_id or field_id not in known:
                broken.append(f"column {name} ({field_id}) of {snapshot.snapshot_id} is lost")
        return [Broken(Promise.EVERY_COLUMN_IS_THERE, what) for what in broken]

    def _judge_evolution(self, before: TableMetadata, after: TableMetadata, batches: int) -> None:
        """Only a batch's own commit changes the schema, unless another engine does, and no column comes twice."""
        if self.schema_at_work or before.current_schema_id == after.current_schema_id:
            return
        self.evolutions += 1
        new = ids_of(after.schema()).difference(*map(ids_of, before.schemas))
        wrong = [] if batches else ["the schema changed without a batch"]
        if after.last_column_id != before.last_column_id + len(new):
            wrong.append(f"{after.last_column_id - before.last_column_id} ids were taken for {len(new)} columns")
        self.broken += [Broken(Promise.EVERY_COLUMN_IS_THERE, what) for what in wrong]

    def _judge_files(self, metadata: TableMetadata) -> list[Broken]:
        """Nothing that was written for an earlier table of the name is committed to this one."""
        paths = self.contents.files(metadata, head_of(metadata, self.branch))
        there = [path for path in paths if path in self.store.files]
        older = [path for path in there if self.store.files[path].created_ms < self._made_ms]
        return [Broken(Promise.DECISIONS_ARE_RIGHT, f"{path} is older than its table") for path in older]

    def _judge_main(self, metadata: TableMetadata) -> list[Broken]:
        """Another branch than the stream's has nothing of it."""
        others = tuple(landed for landed in self.path(metadata, "main") if landed.asked is None)
        return rows_once(self.rows(metadata, "main"), self.expected_of(others))


def ids_of(schema: Schema) -> set[int]:
    """Field ids of the columns of a schema."""
    return {one.field_id for one in schema.fields}


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
