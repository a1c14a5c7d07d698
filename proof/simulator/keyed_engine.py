"""Another engine at a table with a key: inserts, merges, deletes, and rewrites of data files by Iceberg's rules."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from lakesink_catalog.commit.prepared import SNAPSHOT_IDS
from lakesink_catalog.commit.request import branch_at, snapshot_time_ms
from lakesink_catalog.manifests.lists import manifests_under, write_list
from lakesink_protocol.change import Content, ContentFile
from proof.changes import RowChange, sequence_of_others
from proof.content import ZONE
from proof.simulator.contents import head_of
from proof.simulator.engines import FOREIGN_PARTITION, Engine, on_the_same_head
from proof.simulator.keyed_contents import Entry, KeyedContents, LiveRow, Stated
from proof.simulator.keyed_files import Partitioning, data_file, delete_file
from testkit.upserts import DeletesWriter

CHECKED = (Operation.OVERWRITE, Operation.DELETE)
"""Operations of snapshots that Iceberg's Java library asks for new deletes; others it does not open."""
KEYS = 3
LONGEST_COMPACTION_MS = 1500


@dataclass(frozen=True, slots=True)
class Deed:
    """What a snapshot does that is no batch: rows that it inserts, keys of which it deletes all rows, or a replay."""

    inserted: tuple[RowChange, ...] = ()
    removed: tuple[int, ...] = ()
    replayed: tuple[RowChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Base:
    """A table as loaded, its branch, and what is live on its head."""

    table: Table
    branch: str
    head: int | None
    files: list[Stated]
    rows: list[LiveRow]

    @property
    def partitioning(self) -> Partitioning:
        """The present one."""
        return partitioning_of(self.table)


@dataclass(eq=False)
class KeyedEngine(Engine):
    """Another engine's hands at a table with a key.

    Attributes:
        deeds: What its snapshots do, by their ids: told before they are sent.
    """

    deeds: dict[int, Deed] = field(default_factory=dict)

    @property
    def contents(self) -> KeyedContents:
        """What the table holds."""
        assert isinstance(self.truth.contents, KeyedContents)
        return self.truth.contents

    def append(self, branch: str | None = None) -> None:
        """Insert a row of a new key, or one more of a key that is there."""
        base = self._base(branch)
        row = self._new_row(self.world.random.randrange(2 * KEYS))
        files = self._data_files(base, [row])
        self.world.pause()
        self._commit(base, Operation.APPEND, files, Deed(inserted=(row,)))

    def merge(self) -> None:
        """Replace all rows of a key, as MERGE does where it writes delete files."""
        base = self._base()
        key = self._some_key(base)
        if key is not None:
            row = self._new_row(key)
            deletes, replaced = self._deletes(base, key)
            files = [*self._data_files(base, [row]), *deletes]
            self.world.pause()
            self._commit(base, Operation.OVERWRITE, files, Deed((row,), (key,)), replaced)

    def delete(self) -> None:
        """Delete all rows of a key by their positions."""
        base = self._base()
        key = self._some_key(base)
        if key is not None:
            deletes, replaced = self._deletes(base, key)
            self.world.pause()
            self._commit(base, Operation.DELETE, deletes, Deed(removed=(key,)), replaced)

    def compact(self) -> None:
        """Write the live rows of some data files into new ones; commit on any later head on which Iceberg allows it."""
        base = self._base()
        data = [file for file in base.files if file.is_data]
        chosen = {file.path for file in data if self.world.random.random() < 0.8}
        rows = [live.change for live in base.rows if live.file.path in chosen]
        if not rows:
            return
        files = self._data_files(base, self.world.random.sample(rows, len(rows)))
        self.world.sleep(self.world.random.randrange(self.world.random.choice([2, LONGEST_COMPACTION_MS])))
        now = self._base(base.branch)
        trouble = self._conflict(base, now, chosen)
        if trouble:
            self._did("replace in vain", trouble)
            return
        left = {file.path for file in now.files if not file.is_data and set(self.contents.positions(file)) <= chosen}
        old = None if base.head is None else base.table.snapshot_by_id(base.head)
        number = 0 if old is None else old.sequence_number or 0
        self._commit(now, Operation.REPLACE, files, Deed(), chosen | left, number)

    def change_partitioning(self) -> None:
        """Partition the table by zone from now on, or not at all."""
        table = self._table()
        staged = table.transaction()
        with staged.update_spec() as update:
            if partitioning_of(table).by_zone:
                update.remove_field(table.spec().fields[0].name)
            else:
                update.add_field(ZONE, IdentityTransform(), f"{ZONE}_{len(table.specs())}")
        after = staged.table_metadata
        parts = ("partition_specs", "default_spec_id", "last_partition_id")
        self.server.edit(**{part: getattr(after, part) for part in parts})
        self._did("change of the partitioning", "partitions the table otherwise")

    def _base(self, branch: str | None = None) -> Base:
        table, branch = self._table(), branch or self._branch()
        head = head_of(table.metadata, branch)
        return Base(
            table,
            branch,
            head,
            self.contents.stated(table.metadata, head),
            self.contents.live(table.metadata, head),
        )

    def _some_key(self, base: Base) -> int | None:
        keys = sorted({live.change.key for live in base.rows})
        return self.world.random.choice(keys) if keys else None

    def _new_row(self, key: int) -> RowChange:
        self.appended += 1
        sequence = sequence_of_others(self.world.random, self.appended)
        return RowChange((FOREIGN_PARTITION, self.appended), key, sequence, self.world.random.randrange(3))

    def _data_files(self, base: Base, rows: Sequence[RowChange]) -> list[ContentFile]:
        def put(part: Sequence[RowChange]) -> ContentFile:
            file, content = data_file(self._location(base), part, base.partitioning)
            self.server.store.set(file.path, content, Counter(row.row for row in part))
            return file

        return [put(part) for part in base.partitioning.groups(rows)]

    def _deletes(self, base: Base, key: int) -> tuple[list[ContentFile], set[str]]:
        """Delete files for the rows of a key, and those that they replace: of one data file, or of one partition."""
        rows = [live for live in base.rows if live.change.key == key]
        one_each = self.world.random.random() < 0.5

        def group(live: LiveRow) -> Any:
            return live.file.path if one_each else live.file.place

        found, replaced = [], set[str]()
        for _, part in groupby(sorted(rows, key=group), key=group):
            found.append(self._delete_file(base, list(part), replaced, merges=one_each))
        return found, replaced

    def _delete_file(self, base: Base, rows: list[LiveRow], replaced: set[str], *, merges: bool) -> ContentFile:
        positions: dict[str, set[int]] = {}
        for live in rows:
            positions.setdefault(live.file.path, set()).add(live.position)
        older = [file for file in base.files if merges and file.names in positions]
        for file in older:
            positions[file.names] |= self.contents.positions(file)[file.names]
            replaced.add(file.path)
        of = rows[0].file
        partition = Partitioning(of.spec_id, bool(of.place[1])).partition_of(rows[0].change.zone)
        made, content = delete_file(self._location(base), positions, of.spec_id, partition)
        self.server.store.set(made.path, content, Counter({(-1, at): 1 for at in range(made.record_count)}))
        return made

    def _conflict(self, base: Base, now: Base, chosen: set[str]) -> str:
        """Why a rewrite of these files is refused on a later head; empty if it is not."""
        if not chosen <= {file.path for file in now.files}:
            return "a file is not in the table any more"
        at = now.head
        while at != base.head:
            snapshot = None if at is None else now.table.snapshot_by_id(at)
            if snapshot is None:
                return "the base is no ancestor of the head"
            summary = snapshot.summary
            if summary is not None and summary.operation in CHECKED and self._deletes_from(now, snapshot, chosen):
                return "rows of these files were deleted meanwhile"
            at = snapshot.parent_snapshot_id
        return ""

    def _deletes_from(self, now: Base, snapshot: Snapshot, chosen: set[str]) -> bool:
        older = self.contents.stated(now.table.metadata, snapshot.parent_snapshot_id)
        there = {file.path for file in older}
        files = self.contents.stated(now.table.metadata, snapshot.snapshot_id)
        new = [file for file in files if not file.is_data and file.path not in there]
        return any(chosen & set(self.contents.positions(file)) for file in new)

    def _commit(  # type: ignore[override] # of another table
        self,
        at: Base,
        operation: Operation,
        files: Sequence[ContentFile],
        deed: Deed,
        removed: set[str] | None = None,
        number: int | None = None,
    ) -> None:
        table, snapshot_id = at.table, self.world.random.choice(SNAPSHOT_IDS)
        entries: list[Entry] = [(ManifestEntryStatus.ADDED, number, None, _as_data_file(file)) for file in files]
        under = None if at.head is None else table.snapshot_by_id(at.head)
        kept: list[ManifestFile] = []
        if removed:
            entries += [one.entry for one in at.files if one.path not in removed]
        else:
            try:
                kept = manifests_under(table.io, under)
            except FileNotFoundError:
                self._did(f"{operation.value} in vain", "expiry has deleted what it reads")
                return
        last = getattr(table.metadata, "last_sequence_number", 0) + 1  # version 1 has none
        manifests = [*write_manifests(table, entries, snapshot_id), *kept]
        list_path = write_list(table, manifests, snapshot_id=snapshot_id, parent_id=at.head, sequence_number=last)
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=at.head,
            sequence_number=last,
            timestamp_ms=snapshot_time_ms(table, self.world.now_ms),
            manifest_list=list_path,
            summary=Summary(operation),
            schema_id=table.metadata.current_schema_id,
        )
        self.deeds[snapshot_id] = deed
        updates = (AddSnapshotUpdate(snapshot=snapshot), branch_at(table, at.branch, snapshot_id))
        try:
            self.server.apply(on_the_same_head(table, at.branch, at.head), updates)
        except (CommitFailedException, ValueError):
            self._did(f"{operation.value} in vain", "somebody was quicker")
        else:
            self._did(f"foreign {operation.value}", f"commits {len(files)} files, and removes {len(removed or ())}")

    def _location(self, base: Base) -> str:
        return f"{base.table.location()}/data/others-{uuid.uuid4()}.parquet"


def write_manifests(table: Table, entries: Iterable[Entry], snapshot_id: int) -> list[ManifestFile]:
    """Manifests of these entries: one for each partition spec and content."""
    found = []
    kind: Callable[[Entry], tuple[int, int]] = lambda entry: (entry[3].spec_id, int(entry[3].content))  # noqa: E731
    for (spec_id, content), part in groupby(sorted(entries, key=kind), key=kind):
        make = ManifestWriterV2 if content == DataFileContent.DATA else DeletesWriter
        output = table.io.new_output(f"{table.location()}/metadata/{snapshot_id}-{uuid.uuid4()}.avro")
        with make(table.specs()[spec_id], table.schema(), output, snapshot_id, "null") as writer:
            for status, number, file_number, file in part:
                writer.add_entry(
                    ManifestEntry.from_args(
                        status=status,
                        snapshot_id=snapshot_id,
                        sequence_number=number,
                        file_sequence_number=file_number,
                        data_file=file,
                    )
                )
        found.append(writer.to_manifest_file())
    return found


def partitioning_of(table: Table) -> Partitioning:
    """The present partitioning of a table."""
    return Partitioning(table.spec().spec_id, bool(table.spec().fields))


def _as_data_file(file: ContentFile) -> DataFile:
    values = [int.from_bytes(value or b"", "little", signed=True) for value in file.partition]
    made = DataFile.from_args(
        content=DataFileContent.DATA if file.content is Content.DATA else DataFileContent.POSITION_DELETES,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_bytes,
        lower_bounds=dict(file.lower_bounds),
        upper_bounds=dict(file.upper_bounds),
    )
    made.spec_id = file.spec_id
    return made
