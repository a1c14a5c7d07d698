"""The part of locating that runs in executors: it reads the keys files itself, so little travels to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lakesink.keys.data_file import DataFile
from lakesink.keys.footers import Source
from lakesink.keys.key_cache import KeyCache
from lakesink.keys.key_columns import KeyColumns
from lakesink.keys.keys_file import read_changes
from lakesink.keys.newest import CHANGE, numbered
from lakesink.keys.scan import ScanLimits
from lakesink.keys.search import Search
from lakesink.parquet.filesystem import open_input
from lakesink_protocol.row_changes import KeysFile

GROUP_ROWS, GROUP_FILES = 5_000_000, 200
"""Most rows, and most files, that one call searches; a larger file is a group of its own."""

Group = tuple[DataFile, ...]
RunInExecutors = Callable[[Callable[[Any], bytes], Sequence[Any]], Sequence[bytes]]
"""Applies a picklable function to items in executors, in their order; a CancelledError says that the query stopped."""


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
