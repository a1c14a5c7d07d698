"""Searches data files, wherever they are, for the rows of changed keys: local files in place, others by copies.

In executors too: `RemoteSearch` reads the keys files itself, so little travels to it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.keys.data_file import DataFile
from lakesink.keys.footers import Footer, Source, footer_of, open_parquet
from lakesink.keys.key_cache import KeyCache
from lakesink.keys.key_columns import KeyColumns
from lakesink.keys.keys_file import read_changes
from lakesink.keys.locate_errors import file_unreadable, reading
from lakesink.keys.newest import CHANGE, numbered
from lakesink.keys.scan import FILE, ScanLimits, find_rows, found_schema
from lakesink.parquet.filesystem import local_path, many_at_once, open_input, scheme_of
from lakesink_protocol.errors import WriteError
from lakesink_protocol.row_changes import KeysFile

GROUP_ROWS, GROUP_FILES = 5_000_000, 200
"""Most rows, and most files, that one call searches; a larger file is a group of its own."""

Group = tuple[DataFile, ...]
RunInExecutors = Callable[[Callable[[Any], bytes], Sequence[Any]], Sequence[bytes]]
"""Applies a picklable function to items in executors, in their order; a CancelledError says that the query stopped."""


@dataclass(slots=True)
class Search:
    """Searches data files for keys.

    Attributes:
        footers: Of local data files.
    """

    columns: KeyColumns
    source: Source
    cache: KeyCache
    limits: ScanLimits = field(default_factory=ScanLimits)
    footers: dict[DataFile, Footer] = field(default_factory=dict)

    def find(self, files: Sequence[DataFile], changes: pa.Table) -> pa.Table:
        """The rows of the changes' keys, see `find_rows`; a file is its place in the list."""
        if not files or not changes.num_rows:
            return found_schema(self.columns).empty_table()
        for is_last in (False, True):
            with self._searchable(files) as (places, paths):
                try:
                    found = find_rows(paths, changes, self.columns, self.limits)
                    break
                except WriteError:
                    if is_last or not self.cache.forget(files, self.columns):  # a copy that is damaged is made anew
                        raise
        index = found.schema.get_field_index(FILE)
        files_of = pc.take(pa.array(places, pa.int32()), found[FILE])
        return found.set_column(index, found.schema.field(FILE), files_of)

    @contextmanager
    def _searchable(self, files: Sequence[DataFile]) -> Iterator[tuple[list[int], list[str]]]:
        """Places and local paths of the files. A file is copied, too, if the partition has the value of a column."""
        here = {place: file for place, file in enumerate(files) if scheme_of(file.path) == "file"}
        if unknown := [file for file in here.values() if file not in self.footers]:
            read = many_at_once(partial(_read_footer, source=self.source), unknown, unknown[0].path)
            self.footers.update(zip(unknown, read, strict=True))
        footers = {place: self.footers[file] for place, file in here.items()}
        in_place = [
            place
            for place, footer in footers.items()
            if footer.has_ids and all(field_id in footer.columns for field_id, _ in files[place].constants)
        ]
        copied = list(set(range(len(files))).difference(in_place))
        local = [local_path(files[place].path) for place in in_place]
        if not copied:
            yield in_place, local
            return
        with self.cache.held([files[place] for place in copied], self.columns, self.source) as copies:
            yield [*in_place, *copied], [*local, *copies]


def _read_footer(file: DataFile, source: Source) -> Footer:
    with reading(file.path, file_unreadable), source.open_input(file.path) as opened:
        parquet = open_parquet(file.path, opened, file.rows)
        return footer_of(parquet.schema_arrow, source.mapping)


@dataclass(frozen=True, slots=True)
class RemoteSearch:
    """Searches one group of data files for all changes of the batch. Picklable, and without secrets.

    Attributes:
        file_io: Allow-listed properties of the file system; secrets are found as in `open_filesystem`.
        mapping: Field ids by names, for files without field ids.
    """

    columns: KeyColumns
    keys_files: tuple[KeysFile, ...]
    file_io: tuple[tuple[str, str], ...]
    catalog_name: str | None
    cache: KeyCache
    mapping: tuple[tuple[str, int], ...] = ()
    limits: ScanLimits = ScanLimits(1, keys_bytes=8 * 2**20)  # noqa: RUF009 - frozen; a task has one core of an executor

    def __call__(self, group: Group) -> bytes:
        """The found rows as an Arrow IPC stream; a file is its place in the group."""
        search = Search(self.columns, Source(self.open_input, dict(self.mapping)), self.cache, self.limits)
        return to_bytes(search.find(group, _changes(self)))

    def open_input(self, location: str) -> Any:
        """Open a file of the table."""
        return open_input(location, dict(self.file_io), self.catalog_name)


def groups_of(files: Sequence[DataFile], most_rows: int = GROUP_ROWS, most_files: int = GROUP_FILES) -> list[Group]:
    """The files in groups of limited size, in their order."""
    groups: list[list[DataFile]] = []
    rows = 0
    for file in files:
        rows += file.rows
        if not groups or rows > most_rows or len(groups[-1]) == most_files:
            groups.append([])
            rows = file.rows
        groups[-1].append(file)
    return [tuple(group) for group in groups]


def to_bytes(table: pa.Table) -> bytes:
    """A table as a compressed Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def from_bytes(data: bytes) -> pa.Table:
    """The inverse of `to_bytes`."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


@lru_cache(maxsize=1)
def _changes(of: RemoteSearch) -> pa.Table:
    """The numbers and keys of the batch's changes, kept for the next group of files of the same worker."""
    found = numbered(read_changes(of.keys_files, of.columns, of.open_input)).select([CHANGE, *of.columns.key_names])
    pa.default_memory_pool().release_unused()  # the files' content, and the columns that nothing refers to any more
    return found
