"""Locates the changes of a batch on a head: the delete files of the rows that they replace or remove."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from lakesink.locate.data_file import DataFile
from lakesink.locate.deleted_rows import Deleted, read_deleted
from lakesink.locate.footers import parse_name_mapping
from lakesink.locate.key_cache import DEFAULT_BYTES, KeyCache
from lakesink.locate.key_columns import KeyColumns, key_columns
from lakesink.locate.keys_files import TASK, read_changes
from lakesink.locate.live_rows import OldFile, applicable, merged, named_by_bounds, not_deleted, positions_by_file
from lakesink.locate.newest import CHANGE, Newest, newest_of_each_key, numbered, written
from lakesink.locate.prune import key_partitions, key_ranges
from lakesink.locate.refusals import keys_file_damaged
from lakesink.locate.resolve import Resolution, resolve
from lakesink.locate.scan import FILE, ScanLimits, found_schema
from lakesink.locate.search import Search
from lakesink.locate.work import RemoteSearch, Run, from_bytes, groups_of
from lakesink.writer.deletes import FILE_PATH, DeletedRows, write_deletes
from lakesink.writer.filesystem import shareable_properties
from lakesink.writer.partitions import Partition
from lakesink.writer.plan import PartitionField
from lakesink_catalog.commit.located import Located
from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_catalog.tables.locations import data_location
from lakesink_protocol.change import ContentFile
from lakesink_protocol.row_changes import ChangeCounts, KeysFile

NAME_MAPPING = "schema.name-mapping.default"
WORKERS_FROM_BYTES = 256 * 2**20
_SEARCHED_ROWS, _SEARCHED_FILES = 50_000_000, 1_000

ReadLive = Callable[[Table, int | None, Sequence[int]], LiveFiles]
"""Reads the live files of a snapshot of the table, with the bounds of these fields."""


class PreparedKeys(Protocol):
    """The changes of a prepared batch, see `lakesink_catalog.commit.prepared.PreparedChanges`."""

    @property
    def key_ids(self) -> tuple[int, ...]:
        """Field ids of the key columns."""

    @property
    def sequence_ids(self) -> tuple[int, ...]:
        """Field ids of the sequence columns."""

    @property
    def keys_files(self) -> tuple[KeysFile, ...]:
        """One for each task with changes."""

    @property
    def superseded(self) -> int:
        """Changes that tasks dropped, because they had a newer one."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file of the batch itself, and the task that wrote it."""

    path: str
    task: int
    rows: int
    spec_id: int
    partition: Partition


@dataclass(frozen=True, slots=True)
class Workers:
    """Other machines that search data files, used from a size of the key columns on; 0 means always."""

    run: Run
    from_bytes: int = WORKERS_FROM_BYTES


def default_cache_folder() -> str:
    """A folder for copies of key columns: one for each user of the machine."""
    return str(Path(tempfile.gettempdir()) / f"lakesink-keys-{os.getuid()}")


@dataclass(frozen=True, slots=True)
class LocateSettings:
    """What locating may use.

    Attributes:
        folder: For copies of key columns of data files that are not on a local disk.
    """

    folder: str = field(default_factory=default_cache_folder)
    folder_bytes: int = DEFAULT_BYTES
    limits: ScanLimits = field(default_factory=ScanLimits)
    workers: Workers | None = None


@dataclass(slots=True)
class Locator:
    """Locates the changes of one batch; its call is the batch's `Locate`.

    Attributes:
        new_files: The data files of the batch; called only if a row of the batch itself has to be removed.
        stem: Start of the names of delete files.
    """

    changes: PreparedKeys
    new_files: Callable[[Table], Sequence[NewFile]]
    read_live: ReadLive
    stem: str
    settings: LocateSettings = field(default_factory=LocateSettings)
    _batch: "_BatchKeys | None" = None
    _found: "_FoundRows | None" = None
    _last: Located | None = None

    def __call__(self, table: Table, head: int | None) -> Located:
        """The deletes of the batch on this head; remembered until another head is asked for."""
        if self._last is None or self._last.head != head:
            self._last = self._locate(table, head)
        return self._last

    def _locate(self, table: Table, head: int | None) -> Located:
        if not self.changes.keys_files:
            return Located(head, counts=ChangeCounts(superseded=self.changes.superseded))
        batch = self._batch = self._batch or _read_batch(table, self.changes, self.settings)
        key_ids = self.changes.key_ids
        live = LiveFiles((), ()) if head is None else self.read_live(table, head, key_ids)
        rows = self._found = self._found or _FoundRows(found_schema(batch.columns).empty_table())
        rows.search(batch, table, _candidates(table, live, batch), self.settings)
        on_head = _OnHead.of(rows, live, batch.search)
        resolution = resolve(batch.newest.changes, on_head.rows, on_head.ages, batch.columns)
        own = self._masked(table, batch, resolution)
        deleted = [*on_head.deleted_rows(resolution.removed), *own]
        superseded = self.changes.superseded + batch.newest.superseded
        return Located(
            head,
            deletes=_write(table, self.stem, deleted),
            replaced=on_head.replaced(resolution.removed),
            counts=replace(resolution.counts, superseded=superseded),
            masked=sum(len(rows.positions) for rows in own),
        )

    def _masked(self, table: Table, batch: "_BatchKeys", resolution: Resolution) -> list[DeletedRows]:
        """The rows of the batch itself without effect: of late upserts, and of upserts that another task supersedes."""
        changes = batch.newest.changes
        late = written(changes.filter(pc.is_in(changes[CHANGE], resolution.late)))
        unwanted = pa.concat_tables([batch.newest.masked, late.select(batch.newest.masked.column_names)])
        if not unwanted.num_rows:
            return []
        tasks = set(unwanted[TASK].unique().to_pylist())
        files = [file for file in self.new_files(table) if file.task in tasks]
        found = batch.search.find([DataFile(file.path, file.rows) for file in files], numbered(unwanted))
        written_by = pc.take(pa.array([file.task for file in files], pa.int32()), found[FILE])
        own = found.filter(pc.equal(written_by, pc.take(unwanted[TASK], found[CHANGE])))
        if own.num_rows != unwanted.num_rows:
            path = self.changes.keys_files[0].path
            raise keys_file_damaged(path, "the data files of a task do not have exactly one row of each key")
        return [
            DeletedRows(files[place].path, files[place].spec_id, files[place].partition, merged([positions]))
            for place, positions in positions_by_file(own).items()
        ]


@dataclass(frozen=True, slots=True)
class _BatchKeys:
    """The changes of the batch, and what searches for them."""

    columns: KeyColumns
    newest: Newest
    search: Search
    mapping: Mapping[str, int]
    keys_files: tuple[KeysFile, ...]


@dataclass(slots=True)
class _FoundRows:
    """All rows of the batch's keys in the data files that were searched on some head. A data file never changes."""

    rows: pa.Table
    files: dict[str, int] = field(default_factory=dict)

    def search(self, batch: _BatchKeys, table: Table, files: Sequence[LiveFile], settings: LocateSettings) -> None:
        """Search the files that were not searched before."""
        unknown = [DataFile(file.path, file.record_count) for file in files if file.path not in self.files]
        if not unknown:
            return
        start = len(self.files)
        self.files.update((file.path, start + place) for place, file in enumerate(unknown))
        found = [self.rows]
        for part in _search(batch, table, unknown, settings):
            winners = part.filter(pc.is_in(part[CHANGE], batch.newest.changes[CHANGE]))
            numbers = pc.add(winners[FILE], pa.scalar(start, pa.int32()))
            found.append(winners.set_column(0, winners.schema.field(FILE), numbers))
        self.rows = pa.concat_tables(found)


@dataclass(frozen=True, slots=True)
class _OnHead:
    """The live rows of the batch's keys on one head, and the delete files that apply to their data files."""

    rows: pa.Table
    files: Mapping[int, LiveFile]
    deletes: Mapping[str, LiveFile]
    deleted: Deleted

    @classmethod
    def of(cls, found: _FoundRows, live: LiveFiles, search: Search) -> "_OnHead":
        """Leave out rows of removed data files, and deleted rows."""
        files = {found.files[file.path]: file for file in live.data if file.path in found.files}
        there = found.rows.filter(pc.is_in(found.rows[FILE], pa.array(files, pa.int32())))
        touched = [files[number] for number in pc.unique(there[FILE]).to_pylist()]
        deleted = read_deleted(applicable(_old(touched), _old(live.deletes)), search.open_input)
        by_number = {found.files[path]: arrays for path, arrays in deleted.positions.items()}
        return cls(not_deleted(there, by_number), files, {one.path: one for one in live.deletes}, deleted)

    @property
    def ages(self) -> pa.Array:
        """The data sequence number of each file, by its number; NULL for a file of another head."""
        count = max(self.files, default=-1) + 1
        return pa.array([self.files[n].sequence_number if n in self.files else None for n in range(count)], pa.int64())

    def deleted_rows(self, removed: pa.Table) -> list[DeletedRows]:
        """For each data file that loses rows: these, and those that the replaced delete files contain."""
        found = []
        for number, positions in positions_by_file(removed).items():
            file = self.files[number]
            older = self.deleted.merged.get(file.path, [])
            found.append(DeletedRows(file.path, file.spec_id, file.partition, merged([positions, *older])))
        return found

    def replaced(self, removed: pa.Table) -> tuple[LiveFile, ...]:
        """The delete files whose positions are in the new ones."""
        losing = (self.files[number].path for number in pc.unique(removed[FILE]).to_pylist())
        return tuple(self.deletes[path] for file in losing for path in self.deleted.replaced.get(file, []))


def _read_batch(table: Table, changes: PreparedKeys, settings: LocateSettings) -> _BatchKeys:
    columns = key_columns(table.schema().model_dump_json(), changes.key_ids, changes.sequence_ids)
    opened = _opener(table)
    newest = newest_of_each_key(read_changes(changes.keys_files, columns, opened), columns)
    mapping = parse_name_mapping(table.properties.get(NAME_MAPPING))
    cache = KeyCache(settings.folder, settings.folder_bytes)
    search = Search(columns, opened, cache, mapping, settings.limits)
    return _BatchKeys(columns, newest, search, mapping, tuple(changes.keys_files))


def _opener(table: Table) -> Callable[[str], Any]:
    return lambda location: table.io.new_input(location).open()


def _candidates(table: Table, live: LiveFiles, batch: _BatchKeys) -> list[LiveFile]:
    """The data files that can have a key of the batch, by bounds and partition."""
    changes = batch.newest.changes
    ranges = key_ranges(changes, batch.columns)
    partitions = {
        spec_id: key_partitions(changes, batch.columns, _fields(table, spec_id))
        for spec_id in {file.spec_id for file in live.data}
    }

    def may_have(file: LiveFile) -> bool:
        there = partitions[file.spec_id]
        return (there is None or file.partition in there) and ranges.may_be_in(file.lower_bounds, file.upper_bounds)

    return [file for file in live.data if may_have(file)]


def _fields(table: Table, spec_id: int) -> list[PartitionField]:
    fields = table.specs()[spec_id].fields
    return [PartitionField(one.source_id, one.field_id, one.name, str(one.transform)) for one in fields]


def _search(
    batch: _BatchKeys, table: Table, files: Sequence[DataFile], settings: LocateSettings
) -> "Sequence[pa.Table]":
    """The found rows of groups of files; a file is its place among all files."""
    changes, workers = batch.newest.changes, settings.workers
    width = changes.select([CHANGE, *batch.columns.key_names]).nbytes / max(changes.num_rows, 1)
    if workers is None or sum(file.rows for file in files) * width < workers.from_bytes:
        groups = groups_of(files, _SEARCHED_ROWS, _SEARCHED_FILES)
        found = [batch.search.find(group, changes) for group in groups]
    else:
        groups = groups_of(files)
        remote = RemoteSearch(
            batch.columns,
            batch.keys_files,
            tuple(sorted(shareable_properties(table.io.properties).items())),
            table.catalog.name,
            batch.search.cache,
            tuple(sorted(batch.mapping.items())),
            settings.limits,
        )
        found = [from_bytes(data) for data in workers.run(remote, groups)]
    starts = _starts([len(group) for group in groups])
    return [
        part.set_column(0, part.schema.field(FILE), pc.add(part[FILE], pa.scalar(start, pa.int32())))
        for part, start in zip(found, starts, strict=True)
    ]


def _starts(counts: Sequence[int]) -> list[int]:
    return [sum(counts[:place]) for place in range(len(counts))]


def _old(files: Sequence[LiveFile]) -> list[OldFile]:
    return [
        OldFile(
            file.path,
            file.record_count,
            file.spec_id,
            file.partition,
            file.sequence_number,
            names=file.referenced_data_file or named_by_bounds(file.lower_bounds, file.upper_bounds),
            lower=file.lower_bounds.get(FILE_PATH, b""),
            upper=file.upper_bounds.get(FILE_PATH, b""),
        )
        for file in files
    ]


def _write(table: Table, stem: str, deleted: Sequence[DeletedRows]) -> tuple[ContentFile, ...]:
    def create(location: str) -> Any:
        return table.io.new_output(location).create()

    return tuple(write_deletes(deleted, data_location(table), stem, create)) if deleted else ()
