"""A task's data files: one open file a partition, rolled at the target size, the least recently used closed first.

Files are born with their first row and are immutable once closed. After a failure only those that never closed are
removed; closed ones stay, referenced by nothing.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
from pyarrow.fs import FileSystem

from lakesink.writer.dictionaries import worth_a_dictionary
from lakesink.writer.filesystem import PathOf
from lakesink.writer.locations import new_location
from lakesink.writer.parquet import FileFormat, OpenFile
from lakesink.writer.partitions import Partition, Source
from lakesink.writer.plan import WritePlan
from lakesink_catalog.failpoints import reached
from lakesink_protocol.receipt import DataFileReceipt

FULL = 0.9
"""Part of the target size at which a file is full: rather that than one more small row group."""

Storage = tuple[FileSystem, PathOf]


class DataFiles:
    """All files of one task. Ends with `close` or `abandon`.

    Args:
        plan: Target size, row group size, and how many files may be open.
        file_format: Schema and encoding.
        sources: The partition fields.
        task: Index of the task, for names.
        open_storage: Called before the first file: a task without rows touches no storage.
    """

    def __init__(
        self,
        plan: WritePlan,
        file_format: FileFormat,
        sources: Sequence[Source],
        task: int,
        open_storage: Callable[[], Storage],
    ) -> None:
        self._plan = plan
        self._format = file_format
        self._sources = sources
        self._task = task
        self._open_storage = open_storage
        self._storage: Storage | None = None
        self._open: OrderedDict[Partition, OpenFile] = OrderedDict()
        self._closed: list[DataFileReceipt] = []
        self._arrow_bytes = 0
        self._file_bytes = 0

    def is_open(self, partition: Partition) -> bool:
        """True if the partition's next rows would go into a file that is there."""
        return partition in self._open

    def write(self, partition: Partition, rows: pa.Table) -> None:
        """Append rows of one partition, as many row groups and files as their sizes ask for.

        Raises:
            WriteError: The storage failed.
        """
        if self._format.dictionaries is None:
            self._format = self._learned(rows)
        bytes_per_row = max(1.0, rows.nbytes / max(1, rows.num_rows))
        start = 0
        while start < rows.num_rows:
            file = self._file_for(partition)
            count = self._next_rows(file, rows.num_rows - start, bytes_per_row)
            self._write_row_group(file, rows.slice(start, count), count * bytes_per_row)
            start += count

    def finish(self, partition: Partition) -> None:
        """Close the partition's open file, if it has one."""
        if partition in self._open:
            reached("while-writing", self._plan.batch_id)
            self._closed.append(self._open[partition].close())
            del self._open[partition]

    def close(self) -> tuple[DataFileReceipt, ...]:
        """Close what is open and return one receipt for every file of the task.

        Raises:
            WriteError: The storage failed; nothing may be committed.
        """
        for partition in list(self._open):
            self.finish(partition)
        return tuple(self._closed)

    def abandon(self) -> None:
        """Remove the files that never closed; never raises."""
        while self._open:
            self._open.popitem()[1].abandon()

    def _learned(self, rows: pa.Table) -> FileFormat:
        """What the task's first rows say holds for all of its files."""
        limit = self._plan.parquet.dictionary_size_bytes
        return replace(self._format, dictionaries=worth_a_dictionary(rows, self._format.columns, limit))

    def _file_for(self, partition: Partition) -> OpenFile:
        if partition in self._open:
            self._open.move_to_end(partition)
            return self._open[partition]
        while len(self._open) >= max(1, self._plan.open_files):
            self.finish(next(iter(self._open)))
        if self._storage is None:
            self._storage = self._open_storage()
        location = new_location(self._plan, self._sources, self._task, partition)
        self._open[partition] = OpenFile(*self._storage, location, partition, self._format)
        return self._open[partition]

    def _next_rows(self, file: OpenFile, available: int, bytes_per_row: float) -> int:
        """Rows of the next row group: equal parts within its limit, and no more than the file has room for."""
        groups = -(-available * bytes_per_row // max(1, self._plan.parquet.row_group_size_bytes))
        even = -(-available // max(1, int(groups)))
        room = (self._plan.target_file_size_bytes - file.size_bytes) / self._shrinkage()
        return max(1, min(even, int(room / bytes_per_row)))

    def _shrinkage(self) -> float:
        """Bytes in a file for a byte of Arrow memory, as seen so far; before that, no more than one."""
        return max(0.001, self._file_bytes / self._arrow_bytes) if self._file_bytes and self._arrow_bytes else 1.0

    def _write_row_group(self, file: OpenFile, rows: pa.Table, arrow_bytes: float) -> None:
        before = file.size_bytes
        file.write_row_group(rows)
        self._arrow_bytes += int(arrow_bytes)
        self._file_bytes += file.size_bytes - before
        if file.size_bytes >= FULL * self._plan.target_file_size_bytes:
            self.finish(file.partition)
