"""A task's data files: one open file for each partition, closed at the target size or if too many files are open.

The least recently used file is closed first. A file is created with its first row and is immutable once closed. After a
failure, only files that were never closed are removed; closed files stay unreferenced.

Dictionaries are chosen by a sample of the rows: if one outgrows its page, the column is encoded again without it, and
the page stays in the file. With many unique numbers, this takes almost half of the encoder's time.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.parquet.filesystem import NewFiles
from lakesink.parquet.locations import new_location
from lakesink.parquet.parquet import FileFormat, OpenFile
from lakesink.parquet.partitions import Partition, PartitionSource, partition_sources
from lakesink.parquet.statistics import Column, columns
from lakesink.rows.plan import WritePlan
from lakesink.rows.schema import arrow_schema, leaves, parse_schema
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol.change import ContentFile
from lakesink_protocol.events import FileClosing

_SLICES, _SLICE_ROWS = 8, 512
_STEPS = 40
"""Steps of the bisection."""


def dictionary_columns(rows: pa.Table, columns: Sequence[Column], limit_bytes: int) -> tuple[str, ...]:
    """Parquet names of columns whose dictionary is likely to stay small, and of nested columns."""
    sample = rows
    if rows.num_rows > _SLICES * _SLICE_ROWS:  # from several places, because neighbouring rows are similar
        step = rows.num_rows // _SLICES
        sample = pa.concat_tables([rows.slice(at * step, _SLICE_ROWS) for at in range(_SLICES)])
    chosen = (column for column in columns if _stays_small(rows, sample, column, limit_bytes))
    return tuple(column.leaf.parquet_path for column in chosen)


def expected_distinct(seen: int, of: int) -> float:
    """Expected distinct values of a column if a sample of size `of` has `seen` distinct ones; infinite if all differ.

    A sample of n out of D equally frequent values is expected to contain ``D * (1 - exp(-n / D))`` of them.
    """
    if seen >= of:
        return math.inf
    low, high = float(seen), float(of) ** 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if -middle * math.expm1(-of / middle) < seen else (low, middle)
    return high


def _stays_small(rows: pa.Table, sample: pa.Table, column: Column, limit_bytes: int) -> bool:
    if len(column.leaf.indices) > 1 or column.leaf.repeated:
        return True
    values = sample.column(column.leaf.indices[0])
    present = sample.num_rows - values.null_count
    distinct = expected_distinct(pc.count_distinct(values).as_py(), present) if present else 0.0
    width = int(values.nbytes) / max(1, present)
    return distinct * width <= limit_bytes and distinct <= int(rows.num_rows) / 2


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
    sources: Sequence[PartitionSource]
    task: int
    closed: Callable[[ContentFile], None]
    storage: NewFiles | None = None
    _open: OrderedDict[Partition, OpenFile] = field(default_factory=OrderedDict, init=False)
    _arrow_bytes: int = field(default=0, init=False)
    _file_bytes: int = field(default=0, init=False)

    @classmethod
    def of(
        cls, plan: WritePlan, task: int, closed: Callable[[ContentFile], None], storage: NewFiles | None = None
    ) -> "DataFiles":
        """Those of a plan. If it has a sort order, the rows of each file must come in it: the file states it."""
        schema = parse_schema(plan.schema_json)
        of_leaves = columns(leaves(schema), plan.metrics_modes)
        form = FileFormat(plan, arrow_schema(schema, annotated=True), of_leaves, order_id=plan.sort_order_id)
        return cls(form, partition_sources(schema, plan.partition_fields), task, closed, storage)

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
            before = file.size_bytes
            file.write_row_group(rows.slice(start, count))
            self._arrow_bytes += int(count * bytes_per_row)
            self._file_bytes += file.size_bytes - before
            if file.size_bytes >= FULL * self.plan.target_file_size_bytes:
                self.finish(partition)
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
        while len(self._open) >= self.plan.open_files:
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
        ratio = 1.0  # file bytes for each byte of Arrow memory so far
        if self._file_bytes and self._arrow_bytes:
            ratio = max(0.001, self._file_bytes / self._arrow_bytes)
        room = (self.plan.target_file_size_bytes - file.size_bytes) / ratio
        return max(1, min(even, int(room / bytes_per_row)))
