"""A task's data files: one open file for each partition, closed at the target size or if too many files are open.

The least recently used file is closed first. A file is created with its first row and is immutable once closed. After a
failure, only files that were never closed are removed; closed files stay unreferenced.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakesink.parquet.dictionaries import dictionary_columns
from lakesink.parquet.filesystem import NewFiles
from lakesink.parquet.locations import new_location
from lakesink.parquet.parquet import FileFormat, OpenFile
from lakesink.parquet.partitions import Partition, Source
from lakesink.rows.plan import WritePlan
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol.change import ContentFile
from lakesink_protocol.events import FileClosing

FULL = 0.9
"""Fraction of the target size at which a file is full; this avoids one more small row group."""


@dataclass(slots=True)
class DataFiles:
    """All files of one task; ends with `close` or `abandon`.

    Attributes:
        closed: Gets the description of each file as soon as it is closed; none is kept here.
        storage: That of the plan if None; it is opened with the first file.
    """

    file_format: FileFormat
    sources: Sequence[Source]
    task: int
    closed: Callable[[ContentFile], None]
    storage: NewFiles | None = None
    _open: OrderedDict[Partition, OpenFile] = field(default_factory=OrderedDict)
    _arrow_bytes: int = 0
    _file_bytes: int = 0

    @property
    def plan(self) -> WritePlan:
        """The plan of the batch."""
        return self.file_format.plan

    def is_open(self, partition: Partition) -> bool:
        """True if the partition's next rows go into an existing file."""
        return partition in self._open

    def write(self, partition: Partition, rows: pa.Table) -> None:
        """Append rows of one partition, in as many row groups and files as their sizes need."""
        if self.file_format.dictionaries is None:
            limit = self.plan.parquet.dictionary_size_bytes
            chosen = dictionary_columns(rows, self.file_format.columns, limit)
            self.file_format = replace(self.file_format, dictionaries=chosen)
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
            LISTENERS(FileClosing(self.plan.batch_id))  # the listeners of the driver do not exist in an executor
            self.closed(self._open[partition].close())
            del self._open[partition]

    def close(self) -> None:
        """Close all open files."""
        for partition in list(self._open):
            self.finish(partition)

    def abandon(self) -> None:
        """Remove the files that were never closed; never raises."""
        while self._open:
            self._open.popitem()[1].abandon()

    def _file_for(self, partition: Partition) -> OpenFile:
        if partition in self._open:
            self._open.move_to_end(partition)
            return self._open[partition]
        while len(self._open) >= max(1, self.plan.open_files):
            self.finish(next(iter(self._open)))
        if self.storage is None:
            self.storage = NewFiles.at(self.plan.data_location, self.plan.file_io, self.plan.catalog_name)
        location = new_location(self.plan, self.sources, self.task, partition)
        self._open[partition] = OpenFile(self.storage, location, partition, self.file_format)
        return self._open[partition]

    def _next_rows(self, file: OpenFile, available: int, bytes_per_row: float) -> int:
        """Rows of the next row group: equal parts within its limit, and no more than fit into the file."""
        groups = -(-available * bytes_per_row // max(1, self.plan.parquet.row_group_size_bytes))
        even = -(-available // max(1, int(groups)))
        room = (self.plan.target_file_size_bytes - file.size_bytes) / self._compression_ratio()
        return max(1, min(even, int(room / bytes_per_row)))

    def _compression_ratio(self) -> float:
        """File bytes for each byte of Arrow memory so far; 1 before the first row group."""
        return max(0.001, self._file_bytes / self._arrow_bytes) if self._file_bytes and self._arrow_bytes else 1.0

    def _write_row_group(self, file: OpenFile, rows: pa.Table, arrow_bytes: float) -> None:
        before = file.size_bytes
        file.write_row_group(rows)
        self._arrow_bytes += int(arrow_bytes)
        self._file_bytes += file.size_bytes - before
        if file.size_bytes >= FULL * self.plan.target_file_size_bytes:
            self.finish(file.partition)
