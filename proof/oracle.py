"""What must be true after any history: the one judge of every layer, from the simulator to real processes.

It is handed plain facts, however they were gathered, and shares no code with what it judges. A row is known by its key,
the source partition and the offset that it came from, so that a row can be missed and a second copy be seen. Rows are
compared as multisets: a lost row does not hide behind a doubled one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

Key = tuple[int, int]
"""Source partition and offset. Foreign rows have keys too, in partitions of their own."""

Rows = Counter[Key]


class Promise(Enum):
    """What can be broken."""

    NO_ROW_IS_LOST = "no row is lost"
    NO_ROW_IS_DOUBLED = "no row is doubled"
    NO_ROW_IS_INVENTED = "no row is in the table that was never sent"
    BATCHES_ARE_CONTIGUOUS = "own batches follow each other without gap or repetition"
    EVERY_FILE_IS_THERE = "every file that a retained snapshot references exists"
    EVERY_FILE_IS_AS_STATED = "every referenced file has the size and the rows that its manifest states"
    EVERY_COLUMN_IS_THERE = "every column of a batch's rows is in the schema of its snapshot"
    EACH_CHANGE_IS_TOLD = "each change is whole where it went: in the table, the dead letters, and the changelog"
    CHANGES_ARE_COUNTED = "a snapshot counts what became of its changes as it was"
    EVERY_FILE_IS_REFERENCED_ONCE = "no data file is in a table twice"
    EVERY_FILE_KEEPS_ITS_DELETES = "a data file keeps its sequence number, by which deletes apply to it"
    READERS_SEE_WHOLE_BATCHES = "a reader sees whole batches, in order"
    READERS_NEVER_GO_BACK = "a reader never sees less than before"
    NOTHING_REFERENCED_IS_TOUCHED = "nothing referenced is deleted or overwritten"
    THE_RUN_ENDS = "when faults stop, the run ends"
    REFUSALS_ARE_RIGHT = "a refusal comes only where the protocol names it, and the one that it names"
    DECISIONS_ARE_RIGHT = "nothing is committed or skipped where the protocol refuses"


@dataclass(frozen=True, slots=True)
class Broken:
    """One broken promise.

    Attributes:
        promise: Which one.
        what: The case, in words.
    """

    promise: Promise
    what: str

    def __str__(self) -> str:
        return f"BROKEN: {self.promise.value}: {self.what}"


@dataclass(frozen=True, slots=True)
class StatedFile:
    """A data file, or a file of deletes, as its manifest states it.

    Attributes:
        path: Location, as in the manifest.
        size_bytes: Size of the file.
        rows: Rows in it.
        sequence_number: Deletes of a later one apply to it.
        least_stated: What the manifest list states as the least sequence number of its manifest.
    """

    path: str
    size_bytes: int
    rows: int
    sequence_number: int = field(default=0, compare=False)
    least_stated: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """One retained snapshot.

    Attributes:
        snapshot_id: Its id.
        parent_id: The snapshot under it; None for the first one, or where expiry cut the link.
        batch_id: Batch of the sink that is looked at; None for others' snapshots.
        files: Live files, those of deletes too.
        unreadable: Why its manifests cannot be read; empty if they can.
    """

    snapshot_id: int
    parent_id: int | None
    batch_id: int | None
    files: tuple[StatedFile, ...]
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What a table shows of one sink.

    Attributes:
        head: Snapshot of the branch; None if it has none.
        snapshots: Every retained snapshot by id, whatever branch it is on.
    """

    head: int | None
    snapshots: Mapping[int, SnapshotFacts]

    @property
    def files(self) -> tuple[StatedFile, ...]:
        """Live files of the branch."""
        return () if self.head is None else self.snapshots[self.head].files

    def walk(self) -> list[SnapshotFacts]:
        """Snapshots of the branch, from the oldest that can be reached to the head."""
        found: list[SnapshotFacts] = []
        at = self.head
        while at is not None and at in self.snapshots:
            found.append(self.snapshots[at])
            at = self.snapshots[at].parent_id
        return found[::-1]

    def batches(self) -> list[int]:
        """Own batches on the walk, oldest first."""
        return [snapshot.batch_id for snapshot in self.walk() if snapshot.batch_id is not None]


def facts_of(table: Table, sink_id: str, branch: str = "main") -> TableFacts:
    """Read what a table shows, through its own metadata and manifests.

    Args:
        table: As loaded, from any catalog.
        sink_id: Whose batches are looked at.
        branch: Which branch.
    """
    head = table.metadata.refs.get(branch)
    return TableFacts(
        head=None if head is None else head.snapshot_id,
        snapshots={
            snapshot.snapshot_id: _facts(table.io, snapshot, _own_batch(snapshot, sink_id, branch))
            for snapshot in table.metadata.snapshots
        },
    )


def _facts(io: FileIO, snapshot: Snapshot, batch_id: int | None) -> SnapshotFacts:
    files: tuple[StatedFile, ...] = ()
    unreadable = ""
    try:
        files = tuple(_live_files(io, snapshot))
    except Exception as error:  # noqa: BLE001 - a file of metadata that is gone or torn fails in many ways
        unreadable = f"manifests of snapshot {snapshot.snapshot_id}: {type(error).__name__}: {error}"
    return SnapshotFacts(snapshot.snapshot_id, snapshot.parent_snapshot_id, batch_id, files, unreadable)


def rows_once(found: Rows, expected: Rows) -> list[Broken]:
    """Every expected row is there as often as it was sent, and no other.

    Args:
        found: Rows that a reader counted at the branch's head.
        expected: Rows that were sent: the stream's up to its last committed batch, and everybody else's.
    """
    lost, more = expected - found, found - expected
    doubled = Counter({key: count for key, count in more.items() if key in expected})
    return [
        *_broken(Promise.NO_ROW_IS_LOST, lost),
        *_broken(Promise.NO_ROW_IS_DOUBLED, doubled),
        *_broken(Promise.NO_ROW_IS_INVENTED, more - doubled),
    ]


def told_once(what: str, found: Iterable[Any], wanted: Iterable[Any]) -> list[Broken]:
    """Each of these is there once and whole, and nothing else; a column of NULL is as none.

    Args:
        what: Where they are.
        found: Rows, or parts of them.
        wanted: What they should be.
    """
    texts = [sorted(map(_text, some)) for some in (found, wanted)]
    if texts[0] == texts[1]:
        return []
    return [Broken(Promise.EACH_CHANGE_IS_TOLD, f"{what}: found {texts[0]}, wanted {texts[1]}")]


def batches_contiguous(facts: TableFacts) -> list[Broken]:
    """Batch ids on the walk grow by one; where expiry cut the walk it may begin anywhere."""
    batches = facts.batches()
    wanted = list(range(batches[0], batches[0] + len(batches))) if batches else []
    return [] if batches == wanted else [Broken(Promise.BATCHES_ARE_CONTIGUOUS, f"the branch has batches {batches}")]


def files_whole(facts: TableFacts, stored: Callable[[str], tuple[int, int] | None]) -> list[Broken]:
    """Every file of every retained snapshot is there as stated, in no snapshot twice, and keeps its deletes.

    Args:
        facts: The table.
        stored: Size in bytes and rows of a file by its path; None if it is not there.
    """
    found = facts.snapshots.values()
    broken = [Broken(Promise.EVERY_FILE_IS_THERE, snapshot.unreadable) for snapshot in found if snapshot.unreadable]
    for snapshot in found:
        for path, count in Counter(file.path for file in snapshot.files).items():
            if count > 1:
                broken.append(
                    Broken(Promise.EVERY_FILE_IS_REFERENCED_ONCE, f"{path} {count} times in {snapshot.snapshot_id}")
                )
    for file in sorted({file for snapshot in found for file in snapshot.files}, key=str):
        there = stored(file.path)
        if there is None:
            broken.append(Broken(Promise.EVERY_FILE_IS_THERE, file.path))
        elif there != (file.size_bytes, file.rows):
            stated = f"stated {file.size_bytes} bytes, {file.rows} rows"
            broken.append(
                Broken(Promise.EVERY_FILE_IS_AS_STATED, f"{file.path}: {stated}, has {there[0]} bytes, {there[1]} rows")
            )
    return broken + deletes_kept(facts)


def deletes_kept(facts: TableFacts) -> list[Broken]:
    """Of every data file all retained snapshots state one sequence number, and none that its list hides."""
    files = [file for snapshot in facts.snapshots.values() for file in snapshot.files]
    numbers: dict[str, set[int]] = {}
    for file in files:
        numbers.setdefault(file.path, set()).add(file.sequence_number)
    moved = [f"{path}: {sorted(found)}" for path, found in numbers.items() if len(found) > 1]
    hidden = {
        f"{file.path}: {file.sequence_number}, its list states {file.least_stated} as the least"
        for file in files
        if file.sequence_number < file.least_stated
    }
    return [Broken(Promise.EVERY_FILE_KEEPS_ITS_DELETES, what) for what in [*moved, *sorted(hidden)]]


def reader_honest(seen: Sequence[Rows], batches: Sequence[Rows]) -> list[Broken]:
    """What one reader saw, look after look, were the first batches, whole, and never fewer than before.

    Args:
        seen: The stream's own rows at each look.
        batches: Rows of each batch, in order.
    """
    broken = []
    before = 0
    for look, rows in enumerate(seen):
        whole = _whole_batches(rows, batches)
        if whole is None:
            broken.append(Broken(Promise.READERS_SEE_WHOLE_BATCHES, f"look {look} saw {sum(rows.values())} rows"))
            continue
        if whole < before:
            broken.append(Broken(Promise.READERS_NEVER_GO_BACK, f"look {look} saw {whole} batches after {before}"))
        before = whole
    return broken


def untouched(touched: Iterable[str], referenced: Callable[[str], bool]) -> list[Broken]:
    """No file that was deleted or overwritten was referenced when that happened."""
    return [Broken(Promise.NOTHING_REFERENCED_IS_TOUCHED, path) for path in touched if referenced(path)]


def ended_well(error_code: str | None, allowed: Iterable[str]) -> list[Broken]:
    """The run ended by itself, or stopped with an error that the scenario allows.

    Args:
        error_code: Code of the error that stopped it; None if it ended; empty if it neither ended nor stopped.
        allowed: Codes that the scenario allows.
    """
    if error_code is None or error_code in set(allowed):
        return []
    if not error_code:
        return [Broken(Promise.THE_RUN_ENDS, "it neither ended nor stopped with an error")]
    return [Broken(Promise.REFUSALS_ARE_RIGHT, f"it stopped with {error_code}, which nothing in the history explains")]


def _text(one: Any) -> str:
    return repr(sorted(item for item in one.items() if item[1] is not None)) if isinstance(one, dict) else repr(one)


def _broken(promise: Promise, rows: Rows) -> list[Broken]:
    if not rows:
        return []
    shown = ", ".join(f"{partition}/{offset}" for partition, offset in sorted(rows)[:5])
    return [Broken(promise, f"{sum(rows.values())} rows, {shown}{' ...' if len(rows) > 5 else ''}")]


def _whole_batches(rows: Rows, batches: Sequence[Rows]) -> int | None:
    """How many first batches these rows are; None if they are not."""
    left, count = Counter(rows), 0
    for batch in batches:
        if not left and batch:
            return count
        if batch - left:
            return None
        left -= batch
        count += 1
    return None if left else count


def _own_batch(snapshot: Snapshot, sink_id: str, branch: str) -> int | None:
    summary: Mapping[str, Any] = snapshot.summary.additional_properties if snapshot.summary else {}
    own = summary.get("lakesink.sink-id") == sink_id and summary.get("lakesink.branch") == branch
    return int(summary["lakesink.batch-id"]) if own else None


def _live_files(io: FileIO, snapshot: Snapshot) -> Iterable[StatedFile]:
    for manifest in snapshot.manifests(io):
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            file = entry.data_file
            yield StatedFile(
                path=file.file_path,
                size_bytes=file.file_size_in_bytes,
                rows=file.record_count,
                sequence_number=entry.sequence_number or 0,
                least_stated=manifest.min_sequence_number,
            )
