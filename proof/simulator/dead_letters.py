"""What is true of the table of dead letters, whatever becomes of it: which batch put which rows aside, and when.

The table may be dropped, and rolled back by its operator. A row is in the stream's table or a letter of its batch: so a
batch that lands brings the rows that are no letters of it at that moment. Letters of a table that was dropped count for
a run of the batch that began before that, for a run can look no later than at its own commit.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from pyiceberg.table.metadata import TableMetadata

from lakesink.rows.letters import letters_key
from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import SinkKey
from proof.oracle import Broken, Promise, Rows, rows_once
from proof.simulator.catalog import Version
from proof.simulator.contents import Contents, head_of
from proof.simulator.store import SimulatedStore
from proof.simulator.uploads import rows_of_file

BatchName = tuple[str, int, str]
"""Query, batch id and fingerprint, as in `proof.simulator.truth`."""
Name = tuple[str, int]
"""Application and version: what letters are known by."""
NOBODY: Name = ("", -1)
"""What made a snapshot without letters."""
MAIN = "main"


@dataclass(frozen=True, slots=True)
class Letters:
    """One snapshot that is, or was, in the table; `name` is empty for others'."""

    snapshot_id: int
    parent_id: int | None
    name: Name
    rows: Rows


@dataclass(frozen=True, slots=True)
class Gone:
    """Letters that somebody removed; `at_step` of the scheduler, and `dropped` with their table."""

    rows: Rows
    at_step: int
    dropped: bool


@dataclass(eq=False)
class DeadLetters:
    """Watches the server of the table.

    Attributes:
        store: What is stored.
        broken: What was found to be wrong.
        newest: The table as it is; None if it is not there.
        gone: Letters that somebody removed, by their names.
        was_dropped: Somebody has dropped the table once.
        states: The letters of every state: what a driver may have seen.
    """

    store: SimulatedStore
    broken: list[Broken] = field(default_factory=list)
    newest: Version | None = None
    gone: dict[Name, Gone] = field(default_factory=dict)
    was_dropped: bool = False
    states: list[dict[Name, Rows]] = field(default_factory=list)
    _landed: dict[int, Letters] = field(default_factory=dict)
    _asked: dict[tuple[str, BatchName], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.contents = Contents(self.store, self.broken)

    def note(self, version: Version) -> None:
        """Take note of a new state, and judge it."""
        metadata = version.metadata
        for snapshot in metadata.snapshots:
            if snapshot.snapshot_id not in self._landed:
                said = snapshot.summary.additional_properties if snapshot.summary else {}
                added = self.contents.added(metadata, snapshot.snapshot_id, snapshot.parent_snapshot_id)
                is_batch = "lakesink.sink-id" in said  # else maintenance, which adds no rows
                for file in () if is_batch else added:
                    stored = self.store.files[file]
                    self.store.files[file] = replace(stored, rows=rows_of_file(stored.read()))
                self._landed[snapshot.snapshot_id] = Letters(
                    snapshot.snapshot_id,
                    snapshot.parent_snapshot_id,
                    (said["lakesink.sink-id"], int(said["lakesink.batch-id"])) if is_batch else NOBODY,
                    sum((self.store.files[file].rows or Counter() for file in added if is_batch), Counter()),
                )
        self.newest = version
        self.states.append(self._by_name())
        path = self.path()
        names = Counter(letters.name for letters in path if letters.name != NOBODY)
        twice = [name for name, count in names.items() if count > 1]
        self.broken += [Broken(Promise.NO_ROW_IS_DOUBLED, f"letters of batch {name[1]} twice") for name in twice]
        found = self.contents.rows(metadata, head_of(metadata, MAIN))
        self.broken += rows_once(found, sum((letters.rows for letters in path), Counter()))

    def path(self) -> list[Letters]:
        """Snapshots under the head, newest first."""
        found: list[Letters] = []
        head = None if self.newest is None else head_of(self.newest.metadata, MAIN)
        while head is not None:
            found.append(self._landed[head])
            head = found[-1].parent_id
        return found

    def removed(self, names: set[Name], *, dropped: bool) -> None:
        """Somebody removes the letters of these names; all of them with their table, if it is `dropped`."""
        for name, rows in self._by_name().items():
            if name in names or dropped:
                self.gone[name] = Gone(rows, self.store.world.steps, dropped)
        if dropped:
            self.newest, self.was_dropped = None, True

    def ask(self, batch: BatchName) -> None:
        """The actor that is at work begins a run of a batch."""
        self._asked[self._actor(), batch] = self.store.world.steps

    def landing(self, sink: tuple[str, str], branch: str, batch: BatchName) -> Rows:
        """The dead letters of a batch that lands now; `sink` is the UUID of its table, and its id."""
        name = name_of(sink, branch, batch)
        there, gone = self._by_name().get(name), self.gone.get(name)
        if there is not None or gone is None or not gone.dropped:
            return there or Counter()
        asked = self._asked.get((self._actor(), batch), 0)  # requests on their way were sent by who knows whom
        return gone.rows if asked < gone.at_step else Counter()

    def judge(self, rows: Rows, aside: Rows) -> list[Broken]:
        """Letters of a batch are rows of it, each once."""
        more = aside - rows
        return [Broken(Promise.NO_ROW_IS_INVENTED, f"letters {sorted(more)} are not of their batch")] if more else []

    def judge_end(self, name: Name, aside: Rows) -> list[Broken]:
        """The letters of a batch in the table are still what they were when it landed, unless somebody removed them."""
        there = self._by_name().get(name, Counter())
        if name in self.gone and not there:
            return []
        return rows_once(there, aside)

    def may_differ(self, name: Name, aside: list[Rows], *, is_open: bool) -> bool:
        """Some state had other letters of this batch than each of these, or a later one's while the batch `is_open`."""
        application, batch_id = name
        return any(
            (version > batch_id and is_open) or (version == batch_id and any(rows != one for one in aside))
            for state in self.states
            for (one_of, version), rows in state.items()
            if one_of == application
        )

    def refusal_is_right(self, reason: Reason, name: Name) -> bool:
        """Somebody has dropped the table, rolled it back behind letters of the application, or committed later ones."""
        application, batch_id = name
        if reason is Reason.REWOUND:
            return any(
                one_of == application and version > batch_id for state in self.states for one_of, version in state
            )
        if reason is Reason.TABLE_REPLACED:
            return self.was_dropped
        rolled_back = [name for name, gone in self.gone.items() if not gone.dropped]
        return reason is Reason.ROLLED_BACK and any(name[0] == application for name in rolled_back)

    @property
    def metadata(self) -> TableMetadata | None:
        """Of the table; None if it is not there."""
        return None if self.newest is None else self.newest.metadata

    def reachable(self) -> set[str]:
        """Everything that retained snapshots refer to."""
        return set() if self.metadata is None else self.contents.reachable(self.metadata)

    def _by_name(self) -> dict[Name, Rows]:
        return {letters.name: letters.rows for letters in self.path()}

    def _actor(self) -> str:
        current = self.store.world.current
        return "" if current is None else current.name


def name_of(sink: tuple[str, str], branch: str, batch: BatchName) -> Name:
    """What the letters of a batch are known by."""
    (table_uuid, sink_id), (query_id, batch_id, _) = sink, batch
    return letters_key(SinkKey(sink_id, branch), query_id, table_uuid).name, batch_id
