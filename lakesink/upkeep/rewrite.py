"""Writes the live rows of data files into new ones, as the table has them now, and proves that they are the same.

It needs no catalog, so that an executor can do it. A file that cannot be read exactly ends the rewrite of its group.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from lakesink.keys.keys_file import OpenInput
from lakesink.keys.locate_errors import file_unreadable, reading
from lakesink.parquet.files import DataFiles
from lakesink.parquet.filesystem import NewFiles, many_at_once, scheme_of
from lakesink.parquet.partitions import Group, Grouping, Partition, group
from lakesink.parquet.positions import in_order, mask_of
from lakesink.parquet.single_value import decoded_array
from lakesink.rows.batches import rows_at_once
from lakesink.rows.nested import all_null
from lakesink.rows.plan import WritePlan
from lakesink.rows.schema import Field, Primitive, Struct, arrow_schema, arrow_type, parse_schema
from lakesink.upkeep.columns import (
    Convert,
    FileColumn,
    Unsuitable,
    check_missing,
    check_told,
    conversions,
    found_columns,
)
from lakesink.upkeep.origins import Origins
from lakesink.upkeep.policy import Verify
from lakesink.upkeep.proof import PROOF, Figures, check_nulls, difference, leaf_nulls, same_rows
from lakesink_protocol.change import ContentFile
from lakesink_protocol.errors import WriteError
from lakesink_protocol.redact import describe

TASK = 99_999
"""The task in the names of rewritten files: tasks have other numbers in all but the largest jobs."""
UNREADABLE = "unreadable"
"""The code of a file that cannot be read."""
_AT_ONCE_BYTES, _WHOLE_BYTES = 4 * 2**20, 64 * 2**20
CHUNK_BYTES = 32 * 2**20
"""Of Arrow memory: rows that are written at once, often in the driver."""
SORTED_BYTES = 256 * 2**20
"""The same if they are sorted."""
Order = Callable[[pa.Table], pa.Array | None]


@dataclass(frozen=True, slots=True)
class InputFile:
    """A data file, as its manifest states it.

    Attributes:
        constants: Values of columns that its partition tells, by field id, in single-value form.
        deleted: Positions of rows that are not written again.
    """

    path: str
    size_bytes: int
    rows: int
    constants: Mapping[int, bytes] = field(default_factory=dict)
    deleted: BitMap64 = field(default_factory=BitMap64)


@dataclass(frozen=True, slots=True)
class Work:
    """The rewrite of one group. It is picklable if `order` is.

    Attributes:
        partition: That of all rows; None if the plan's spec divides them.
        rows_per_file: Live rows, so that files of one partition become equally large.
        mapping: The table's name mapping, for files without field ids.
        order: The indices that sort rows, or None if they are sorted; see `lakesink.parquet.order`.
    """

    files: tuple[InputFile, ...]
    plan: WritePlan
    partition: Partition | None
    rows_per_file: int
    mapping: Sequence[Mapping[str, Any]] = ()
    verify: Verify = Verify.DIGEST
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class Rewritten:
    """New files in the order in which they were written, where their rows came from, and files that must stay."""

    files: tuple[ContentFile, ...]
    origins: Origins
    read: tuple[InputFile, ...]
    left: Mapping[str, str]


def rewrite(work: Work, open_input: OpenInput, storage: NewFiles | None = None) -> Rewritten:
    """Write the live rows of a group, and compare what the new files hold with what was read.

    After a failure, a file that was never closed is removed.

    Raises:
        Unsuitable: The proof failed, or only the values of a file show that it must stay.
        WriteError: A file cannot be read or written.
    """
    reader = _Reader(work, open_input)
    left = reader.why_left()
    while True:
        reader.work = replace(work, files=tuple(file for file in work.files if file.path not in left))
        try:
            return _write(reader, storage, left)
        except Unsuitable as error:
            if not error.path:
                raise
            left |= {error.path: str(error), **reader.unsuitable()}


def _write(reader: "_Reader", storage: NewFiles | None, left: Mapping[str, str]) -> Rewritten:
    work, written, origins = reader.work, list[ContentFile](), Origins()
    figures: dict[Partition, Figures] = defaultdict(Figures)
    new = DataFiles.of(work.plan, TASK, written.append, storage)
    divided = _Divided(new, work.rows_per_file)
    try:
        for partition, rows, numbers in _parts(reader, new):
            figures[partition].add(rows)
            origins.add(partition, numbers)
            divided.write(partition, rows)
        new.close()
    except BaseException:  # any end must remove an open file; it is raised again
        new.abandon()
        raise
    live = sum(file.rows - len(file.deleted) for file in work.files)
    if not origins.are_all(live) or sum(file.record_count for file in written) != live:
        raise Unsuitable(f"{PROOF}: not all live rows were written once")
    _prove(reader, new, written, figures)
    return Rewritten(tuple(written), origins, work.files, left)


@dataclass(slots=True)
class _Divided:
    """Begins a new file after so many rows of a partition."""

    new: DataFiles
    rows_per_file: int
    _in_file: dict[Partition, int] = field(default_factory=lambda: defaultdict(int))

    def write(self, partition: Partition, rows: pa.Table) -> None:
        start = 0
        while start < rows.num_rows:
            part = rows.slice(start, self.rows_per_file - self._in_file[partition])
            self.new.write(partition, part)
            start += part.num_rows
            self._in_file[partition] += part.num_rows
            if self._in_file[partition] >= self.rows_per_file:
                self.new.finish(partition)
                self._in_file[partition] = 0


@dataclass(slots=True)
class _Reader:
    """Reads the rows of a group's files in the table's columns; the content of a small group is kept."""

    work: Work
    open_input: OpenInput
    _contents: dict[str, pa.Buffer] = field(default_factory=dict)

    @property
    def wanted(self) -> Struct:
        return parse_schema(self.work.plan.schema_json)

    def why_left(self) -> dict[str, str]:
        """Reasons of files whose columns show that they must stay, by path."""
        files = self.work.files
        is_small = sum(file.size_bytes for file in files) <= _WHOLE_BYTES
        reasons = many_at_once(partial(self._why_left, keep=is_small), files, files[0].path)
        return {file.path: why for file, why in zip(files, reasons, strict=True) if why}

    def _why_left(self, file: InputFile, *, keep: bool) -> str:
        try:
            with _alone(file):
                if keep and len(file.deleted) < file.rows:
                    with reading(file.path, file_unreadable), self.open_input(file.path) as source:
                        self._contents[file.path] = pa.py_buffer(source.read())
                self._check(file)
        except Unsuitable as error:
            return str(error)
        return ""

    def _check(self, file: InputFile) -> None:
        if len(file.deleted) < file.rows:
            with self.opened(file) as parquet:
                found = found_columns(parquet.schema_arrow, self.work.mapping)
                self._columns(file, found)
                check_told(found, self.wanted, file.constants.keys())
                if (rows := parquet.metadata.num_rows) != file.rows:
                    raise Unsuitable(f"{UNREADABLE}: it has {rows} rows, and its manifest has {file.rows}")

    def unsuitable(self) -> dict[str, str]:
        """Reasons of files whose values show that they must stay, by path; all rows are read."""
        found = {}
        for file in self.work.files:
            try:
                for _ in self.live(file):
                    pass
            except Unsuitable as error:
                found[file.path] = str(error)
        return found

    @contextmanager
    def opened(self, file: InputFile) -> Iterator[pq.ParquetFile]:
        content = self._contents.get(file.path)
        pre_buffer = content is None and scheme_of(file.path) != "file"
        with reading(file.path, file_unreadable):
            source = self.open_input(file.path) if content is None else pa.BufferReader(content)
            with (
                source,
                pq.ParquetFile(
                    source,
                    pre_buffer=pre_buffer,
                    arrow_extensions_enabled=False,
                    coerce_int96_timestamp_unit="us",
                ) as parquet,
            ):
                yield parquet

    def _columns(
        self, file: InputFile, found: tuple[FileColumn, ...]
    ) -> list[tuple[FileColumn | None, Convert, pa.Scalar]]:
        """For each column that of the file, what converts it, and its value where the file lacks it."""
        both = zip(self.wanted.fields, conversions(found, self.wanted), strict=True)
        return [(there, change, None if there else _told(file, one)) for one, (there, change) in both]

    def live(self, file: InputFile) -> Iterator[pa.RecordBatch]:
        """The rows of a file that are not deleted; if all are, the file is not opened."""
        with _alone(file):
            if len(file.deleted) < file.rows:
                yield from self._live(file)

    def _live(self, file: InputFile) -> Iterator[pa.RecordBatch]:
        stays, at, nulls, fields = None, 0, Counter[int](), self.wanted.fields
        if file.deleted:
            stays = pc.invert(mask_of(in_order(file.deleted), file.rows))
        with self.opened(file) as parquet:
            found = found_columns(parquet.schema_arrow, self.work.mapping)
            columns = self._columns(file, found)
            for batch in parquet.iter_batches(rows_at_once(parquet, _AT_ONCE_BYTES), use_threads=False):
                arrays = [
                    change(batch.column(there.place)) if there else _repeated(value, batch.num_rows)
                    for there, change, value in columns
                ]
                for one, values in zip(fields, arrays, strict=True):
                    if one.required and values.null_count:
                        raise Unsuitable(f"required: it has a NULL in the required column {one.name!r:.60}")
                nulls.update(dict(leaf_nulls(dict(zip(fields, arrays, strict=True)))))
                rows = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self.wanted))
                live = rows if stays is None else rows.filter(stays.slice(at, batch.num_rows))
                at += batch.num_rows
                if live.num_rows:
                    yield live
            check_nulls(found, parquet.metadata, nulls)


def _parts(reader: _Reader, new: DataFiles) -> Iterator[tuple[Partition, pa.Table, range | pa.Array]]:
    """The live rows as they are written: of one partition each, with their numbers among all live rows."""
    start, work = 0, reader.work
    for table in _chunks(reader):
        order = None if work.order is None else work.order(table)
        rows = table if order is None else table.take(order)
        if work.partition is None:
            grouping = group(rows, new.sources)
        else:
            grouping = Grouping(rows, None, (Group(work.partition, 0, rows.num_rows),))
        by_row = grouping.order if order is None else order
        if order is not None and grouping.order is not None:
            by_row = order.take(grouping.order)
        for one, (partition, part) in zip(grouping.groups, grouping.split(grouping.groups), strict=True):
            numbers: range | pa.Array = range(start + one.start, start + one.start + one.count)
            if by_row is not None:
                numbers = pc.add(by_row.slice(one.start, one.count).cast(pa.int64()), pa.scalar(start, pa.int64()))
            yield partition, part, numbers
        start += table.num_rows
        if work.order is not None:
            new.close()  # a file is sorted as a whole


def _chunks(reader: _Reader) -> Iterator[pa.Table]:
    """The live rows of all files in their order, in tables of about so many bytes."""
    plan = reader.work.plan
    most = SORTED_BYTES if reader.work.order is not None else min(CHUNK_BYTES, plan.parquet.row_group_size_bytes)
    held, held_bytes = list[pa.RecordBatch](), 0
    for file in reader.work.files:
        for batch in reader.live(file):
            held.append(batch)
            held_bytes += batch.nbytes
            if held_bytes >= most:
                yield pa.Table.from_batches(held).combine_chunks()
                held, held_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


@contextmanager
def _alone(file: InputFile) -> Iterator[None]:
    """Say which file cannot be read, if it is not the storage that cannot."""
    try:
        yield
    except Unsuitable as error:
        raise Unsuitable(str(error), file.path) from None
    except (WriteError, pa.ArrowException) as error:  # also a value that a narrower type does not have
        if isinstance(error, WriteError) and not error.code.endswith("TABLE_FILE_UNREADABLE"):
            raise
        raise Unsuitable(f"{UNREADABLE}: {describe(error)}", file.path) from error


def _repeated(value: pa.Scalar, rows: int) -> pa.Array:
    return pa.repeat(value, rows) if value.is_valid else all_null(rows, value.type)


def _told(file: InputFile, column: Field) -> pa.Scalar:
    """The value of a column that a file lacks: what its partition tells, or NULL."""
    told = file.constants.get(column.field_id)
    if told is not None and isinstance(column.type, Primitive):
        return decoded_array(column.type, told)[0]
    check_missing(column)
    return pa.scalar(None, arrow_type(column.type))


def _prove(
    reader: _Reader, new: DataFiles, written: Sequence[ContentFile], figures: Mapping[Partition, Figures]
) -> None:
    """Read the new files back; raises Unsuitable if a partition has other rows than were given to be written."""
    found: dict[Partition, Figures] = defaultdict(Figures)
    for file in written:
        for rows in _written(reader, [file]):
            found[file.partition].add(rows)
    for partition in figures.keys() | found.keys():
        if what := difference(figures[partition], found[partition]):
            raise Unsuitable(f"{PROOF}: the {what} changed")
    if reader.work.verify is not Verify.ROWS:
        return
    by_partition = {one: _Rows(_written(reader, [file for file in written if file.partition == one])) for one in found}
    for partition, rows, _ in _parts(reader, new):
        if not same_rows(rows, by_partition[partition].take(rows.num_rows)):
            raise Unsuitable(f"{PROOF}: a row is another one")


def _written(reader: _Reader, files: Sequence[ContentFile]) -> Iterator[pa.Table]:
    for file in files:
        with reader.opened(InputFile(file.path, file.file_size_bytes, file.record_count)) as parquet:
            for batch in parquet.iter_batches(rows_at_once(parquet, _AT_ONCE_BYTES), use_threads=False):
                yield pa.Table.from_batches([batch])


@dataclass(slots=True)
class _Rows:
    """Rows that are taken in other pieces than they come in."""

    tables: Iterator[pa.Table]
    _held: list[pa.Table] = field(default_factory=list)

    def take(self, count: int) -> pa.Table:
        """The next rows, fewer at the end."""
        while sum(one.num_rows for one in self._held) < count and (more := next(self.tables, None)) is not None:
            self._held.append(more)
        held = pa.concat_tables(self._held)
        self._held = [held.slice(count)]
        return held.slice(0, count)
