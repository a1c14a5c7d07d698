"""The rows of a batch's keys in a table's data files, and which of them are live on a head."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from lakesink.keys.data_file import DataFile, constants_of
from lakesink.keys.deleted_rows import Deleted, KnownDeletes, read_deleted
from lakesink.keys.footers import Footer, Source, name_mapping, opener
from lakesink.keys.key_cache import KeyCache
from lakesink.keys.key_columns import KeyColumns, key_columns
from lakesink.keys.keys_file import read_changes
from lakesink.keys.live_rows import applicable, merged, not_deleted, positions_by_file
from lakesink.keys.newest import CHANGE, Newest, newest_of_each_key, places_of
from lakesink.keys.prune import key_partitions, key_ranges
from lakesink.keys.scan import FILE
from lakesink.keys.work import RemoteSearch, RunInExecutors, Search, from_bytes, groups_of
from lakesink.parquet.deletes import DeletedRows
from lakesink.parquet.filesystem import shareable_properties
from lakesink.settings.table_settings import partition_fields
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_catalog.manifests.live_reading import LiveMemory
from lakesink_protocol.row_changes import KeysFile

WORKERS_FROM_BYTES = 256 * 2**20
_SEARCHED_ROWS, _SEARCHED_FILES = 50_000_000, 1_000


def default_cache_folder() -> str:
    """A folder for copies of key columns: one for each user of the machine."""
    return str(Path(tempfile.gettempdir()) / f"lakesink-keys-{os.getuid()}")


@dataclass(frozen=True, slots=True)
class LocateSettings:
    """What locating may use.

    Attributes:
        folder: For copies of key columns of data files that are not on a local disk.
        workers: Other machines that search data files.
        workers_from_bytes: The size of the key columns from which on they do; 0 means always.
    """

    folder: str = field(default_factory=default_cache_folder)
    workers: RunInExecutors | None = None
    workers_from_bytes: int = WORKERS_FROM_BYTES


@dataclass(slots=True)
class LocateMemory:
    """What a sink remembers of its table from batch to batch. Manifests, data files and delete files never change."""

    live: LiveMemory = field(default_factory=LiveMemory)
    deletes: KnownDeletes = field(default_factory=KnownDeletes)
    footers: dict[DataFile, Footer] = field(default_factory=dict)

    def see(self, live: LiveFiles) -> None:
        """Forget what is known of data files that are not on this head."""
        paths = {file.path for file in live.data}
        for file in [file for file in self.footers if file.path not in paths]:
            del self.footers[file]


@dataclass(frozen=True, slots=True)
class BatchKeys:
    """The changes of the batch, and what searches for them."""

    columns: KeyColumns
    newest: Newest
    search: Search
    keys_files: tuple[KeysFile, ...]


@dataclass(slots=True)
class FoundRows:
    """All rows of the batch's keys in the data files that were searched on some head. A data file never changes."""

    rows: pa.Table
    files: dict[tuple[str, int], int] = field(default_factory=dict)

    def search(self, batch: BatchKeys, table: Table, files: Sequence[LiveFile], settings: LocateSettings) -> None:
        """Search the files that were not searched before."""
        unknown = [file for file in files if _identity(file) not in self.files]
        if not unknown:
            return
        start = len(self.files)
        found = _search(batch, table, _data_files(table, unknown, batch.columns), settings, start)
        self.rows = pa.concat_tables([self.rows, *found])
        self.files.update((_identity(file), start + place) for place, file in enumerate(unknown))


@dataclass(frozen=True, slots=True)
class FilesOnHead:
    """The data files on one head that have rows of the batch's keys, and the delete files that apply to them."""

    files: Mapping[int, LiveFile]
    deletes: Mapping[str, LiveFile]
    deleted: Deleted

    @property
    def ages(self) -> pa.Array:
        """The data sequence number of each file, by its number; NULL for a file of another head."""
        count = max(self.files, default=-1) + 1
        return pa.array([self.files[n].sequence_number if n in self.files else None for n in range(count)], pa.int64())

    def after(self, removed: pa.Table) -> tuple[list[DeletedRows], tuple[LiveFile, ...]]:
        """For each data file that loses rows its new delete file, and the delete files whose place these take."""
        found, replaced = list[DeletedRows](), list[LiveFile]()
        for number, positions in positions_by_file(removed).items():
            file, older = self.files[number], self.deleted.alone.get(self.files[number].path, {})
            exact = {path: there for path, there in older.items() if len(there) == self.deletes[path].record_count}
            paths, every = merged(positions, exact)
            found.append(DeletedRows(file.path, file.spec_id, file.partition, every))
            replaced += [self.deletes[path] for path in paths]
        return found, tuple(replaced)


def live_rows_and_files(
    found: FoundRows, live: LiveFiles, search: Search, known: KnownDeletes
) -> tuple[pa.Table, FilesOnHead]:
    """Leave out rows of removed data files, and deleted rows. The rows are apart, because they are needed less long."""
    numbered = ((found.files.get(_identity(file)), file) for file in live.data)
    files = {number: file for number, file in numbered if number is not None}
    there = found.rows
    if len(files) < len(found.files):
        there = there.filter(pc.is_in(there[FILE], pa.array(files, pa.int32())))
    touched = [files[number] for number in pc.unique(there[FILE]).to_pylist()]
    deletes = {one.path: one for one in live.deletes}
    old = applicable(touched, live.deletes)
    for delete in old:
        deletes[delete.path].check_parquet()
    deleted = read_deleted(old, search.source.open_input, known)
    pa.default_memory_pool().release_unused()  # the delete files' content
    positions = deleted.positions
    by_number = {number: positions[file.path] for number, file in files.items() if file.path in positions}
    rows = not_deleted(there, by_number)
    pa.default_memory_pool().release_unused()  # the order of the rows
    return rows, FilesOnHead(files, deletes, deleted)


def _identity(file: LiveFile) -> tuple[str, int]:
    """A path can be used again after the table has lost the file."""
    return file.path, file.sequence_number


def columns_of(table: Table, changes: PreparedChanges) -> KeyColumns:
    """The key and sequence columns as they are in the table."""
    return key_columns(table.schema().model_dump_json(), changes.key_ids, changes.sequence_ids)


def read_batch(
    table: Table, changes: PreparedChanges, columns: KeyColumns, settings: LocateSettings, memory: LocateMemory
) -> BatchKeys:
    """Read the keys files, and choose the newest change of each key; raises WriteError."""
    opened = opener(table)
    newest = newest_of_each_key(read_changes(changes.keys_files, columns, opened), columns)
    pa.default_memory_pool().release_unused()  # the files' content, and the sort
    source, cache = Source(opened, name_mapping(table.properties)), KeyCache(settings.folder)
    search = Search(columns, source, cache, footers=memory.footers)
    return BatchKeys(columns, newest, search, tuple(changes.keys_files))


def candidates(table: Table, live: LiveFiles, batch: BatchKeys) -> list[LiveFile]:
    """The data files that can have a key of the batch, by bounds and partition."""
    changes = batch.newest.changes
    ranges = key_ranges(changes, batch.columns)
    partitions = {
        spec_id: key_partitions(changes, batch.columns, partition_fields(table.specs()[spec_id]))
        for spec_id in {file.spec_id for file in live.data}
    }

    def may_have(file: LiveFile) -> bool:
        there = partitions[file.spec_id]
        return (there is None or file.partition in there) and ranges.may_be_in(file.lower_bounds, file.upper_bounds)

    found = [file for file in live.data if may_have(file)]
    pa.default_memory_pool().release_unused()  # the sorted keys
    for file in found:
        file.check_parquet()
    return found


def _data_files(table: Table, files: Sequence[LiveFile], columns: KeyColumns) -> list[DataFile]:
    """The files, each with the values of key and sequence columns that its partition tells."""
    ids, uuid = {column.field_id for column in columns.all}, table.metadata.table_uuid
    fields = {spec_id: table.specs()[spec_id].fields for spec_id in {file.spec_id for file in files}}
    return [
        DataFile(
            file.path,
            file.record_count,
            constants_of(file.partition, fields[file.spec_id], ids),
            f"{uuid} {file.sequence_number}",
        )
        for file in files
    ]


def _search(
    batch: BatchKeys, table: Table, files: Sequence[DataFile], settings: LocateSettings, first: int
) -> list[pa.Table]:
    """The found rows of groups of files, which are numbered from `first` on."""
    changes, workers = batch.newest.changes, settings.workers
    width = changes.select([CHANGE, *batch.columns.key_names]).nbytes / max(changes.num_rows, 1)
    if workers is None or sum(file.rows for file in files) * width < settings.workers_from_bytes:
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
            tuple(sorted(batch.search.source.mapping.items())),
        )
        found = [_of_newest(from_bytes(data), changes) for data in workers(remote, groups)]
    starts = accumulate((len(group) for group in groups[:-1]), initial=first)
    return [
        part.set_column(0, part.schema.field(FILE), pc.add(part[FILE], pa.scalar(start, pa.int32())))
        for part, start in zip(found, starts, strict=True)
    ]


def _of_newest(found: pa.Table, changes: pa.Table) -> pa.Table:
    """The rows of changes that count, among those that a worker found for all changes of the batch."""
    numbers = places_of(changes[CHANGE])
    count = pa.scalar(len(numbers), pa.int64())
    known = found.filter(pc.less(found[CHANGE], count))
    counts = [numbers.take(part).is_valid() for part in known[CHANGE].chunks]
    return known.filter(pa.chunked_array(counts, pa.bool_()))
