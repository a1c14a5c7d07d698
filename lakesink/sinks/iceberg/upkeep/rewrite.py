"""Writes the live rows of data files into new ones, as the table has them now, and proves that they are the same.

It needs no catalog, so that an executor can do it. A file that cannot be read exactly ends the rewrite of its group.
"""

import errno
import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from lakesink.keys.footers import open_parquet
from lakesink.keys.keys_file import OpenInput
from lakesink.keys.locate_errors import file_unreadable, reading
from lakesink.keys.work import to_bytes
from lakesink.parquet.batch_size import rows_at_once
from lakesink.parquet.files import DataFiles
from lakesink.parquet.filesystem import NewFiles, many_at_once, open_input, scheme_of
from lakesink.parquet.order import sort_keys
from lakesink.parquet.partitions import Partition, group
from lakesink.parquet.positions import in_order, mask_of
from lakesink.parquet.single_value import decoded_array
from lakesink.rows.batches import joined
from lakesink.rows.plan import SortField, WritePlan
from lakesink.rows.schema import Primitive, Struct, leaves, parse_schema
from lakesink.sinks.iceberg.upkeep.columns import Unsuitable, by_field_id, check, check_told, converted
from lakesink.sinks.iceberg.upkeep.origins import Origins
from lakesink.sinks.iceberg.upkeep.policy import Verify
from lakesink.sinks.iceberg.upkeep.proof import PROOF, Figures, check_nulls, null_counts
from lakesink.sinks.iceberg.upkeep.sorting import sorted_ranges
from lakesink_protocol.change import ContentFile
from lakesink_protocol.errors import WriteError
from lakesink_protocol.receipt import Receipt, encode
from lakesink_protocol.redact import describe

_AT_ONCE_BYTES, _WHOLE_BYTES = 4 * 2**20, 64 * 2**20
CHUNK_BYTES = 32 * 2**20
"""Of Arrow memory: rows that are written at once, often in the driver."""
Beside = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
RECEIPT, WHY, FILES, FIRST = b"receipt", b"why", b"files", b"first"
"""Of the metadata of an answer: a receipt, or why the group stays, with reasons by path; and the group's first path."""
_Found = tuple[pa.StructType, Mapping[int, pa.Scalar]]


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
    """The rewrite of one group. It is picklable.

    Attributes:
        partition: That of all rows; None if the plan's spec divides them.
        mapping: The table's name mapping, for files without field ids.
    """

    files: tuple[InputFile, ...]
    plan: WritePlan
    partition: Partition | None
    mapping: Sequence[Mapping[str, Any]] = ()
    verify: Verify = Verify.DIGEST


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The new files of a group as they were written, and where their rows came from."""

    files: Sequence[ContentFile]
    origins: Origins

    def check(self, work: Work) -> None:
        """Raise Unsuitable unless the files have each live row once."""
        live = sum(file.rows - len(file.deleted) for file in work.files)
        if not self.origins.are_all(live) or sum(file.record_count for file in self.files) != live:
            raise Unsuitable(f"{PROOF}: not all live rows were written once")


def rewrite(work: Work, open_input: OpenInput, storage: NewFiles | None = None, beside: Beside = map) -> Rewritten:
    """Write the live rows of a group, and compare what the new files hold with what was read.

    After a failure, a file that was never closed is removed. Rows are written and read again `beside` the reading.

    Raises:
        Unsuitable: Files must stay, or the proof failed.
        WriteError: A file cannot be read or written.
    """
    reader = _Reader(work, open_input)
    reader.check_all()
    origins, closed, written = Origins(), deque[ContentFile](), list[ContentFile]()
    given, found = (defaultdict[Partition, Figures](lambda: Figures(work.verify)) for _ in range(2))
    new = DataFiles.of(work.plan, 0, closed.append, storage)

    def parts() -> Iterator[tuple[Partition, pa.Table]]:
        for partition, rows, numbers in _parts(reader, new):
            given[partition].add(rows)
            origins.add(partition, numbers)
            yield partition, rows

    def write(part: tuple[Partition, pa.Table]) -> None:
        new.write(*part)
        read_again()

    def read_again() -> None:
        while closed:
            written.append(file := closed.popleft())
            with reader.opened(InputFile(file.path, file.file_size_bytes, file.record_count)) as parquet:
                for batch in parquet.iter_batches(rows_at_once(parquet, _AT_ONCE_BYTES), use_threads=False):
                    found[file.partition].add(pa.Table.from_batches([batch]))

    try:
        deque(beside(write, parts()), 0)
        new.close()
        read_again()
    finally:  # any end must remove an open file
        new.abandon()
    for partition in given.keys() | found.keys():
        if what := given[partition].difference(found[partition]):
            raise Unsuitable(f"{PROOF}: the {what} changed")
    return Rewritten(written, origins)


def rewrite_in_executor(work: Work) -> bytes:
    """Rewrite a group: its receipt and the origins of its rows, or the reason why it stays, as an Arrow IPC stream."""
    plan, numbers, about = work.plan, pa.nulls(0, pa.int64()), {FIRST: work.files[0].path.encode()}
    try:
        done = rewrite(work, lambda location: open_input(location, plan.file_io, plan.catalog_name))
    except Exception as error:  # noqa: BLE001 - else Spark would end the other groups of the job too
        of_files = error.files if isinstance(error, Unsuitable) else {}
        why = str(error) if isinstance(error, Unsuitable) else f"failed: {describe(error, plan.file_io)}"
        about |= {WHY: why.encode(), FILES: json.dumps(dict(of_files)).encode()}
    else:
        rows, numbers = sum(file.record_count for file in done.files), done.origins.numbers_in(done.files)
        receipt = Receipt(0, rows, tuple(done.files), schema_id=plan.schema_id, premises=plan.premises)
        about[RECEIPT] = encode(receipt)
    return to_bytes(pa.table({"number": numbers}).replace_schema_metadata(about))


@dataclass
class _Reader:
    """Reads the rows of a group's files in the table's columns; the content of a small group is kept."""

    work: Work
    open_input: OpenInput
    contents: dict[str, pa.Buffer] = field(default_factory=dict)

    @cached_property
    def wanted(self) -> Struct:
        return parse_schema(self.work.plan.schema_json)

    def check_all(self) -> None:
        """Raise Unsuitable with all files that must stay, as far as their footers show it."""
        files = [file for file in self.work.files if len(file.deleted) < file.rows]
        keeps = sum(file.size_bytes for file in files) <= _WHOLE_BYTES
        self._name_all(many_at_once(partial(_why, partial(self._open, keeps=keeps)), files, self.work.files[0].path))

    def _open(self, file: InputFile, *, keeps: bool) -> None:
        if keeps:
            with reading(file.path, file_unreadable), self.open_input(file.path) as source:
                self.contents[file.path] = pa.py_buffer(source.read())
        with self.opened(file) as parquet:
            self._found(file, parquet)

    def _name_all(self, reasons: Iterable[Mapping[str, str]]) -> None:
        if left := {path: why for one in reasons for path, why in one.items()}:
            raise Unsuitable(next(iter(left.values())), left)

    @contextmanager
    def opened(self, file: InputFile) -> Iterator[pq.ParquetFile]:
        content, is_remote = self.contents.get(file.path), scheme_of(file.path) != "file"
        with (
            reading(file.path, file_unreadable),
            self.open_input(file.path) if content is None else pa.BufferReader(content) as source,
        ):
            yield open_parquet(
                file.path, source, file.rows, pre_buffer=is_remote and content is None, coerce_int96_timestamp_unit="us"
            )

    def _found(self, file: InputFile, parquet: pq.ParquetFile) -> _Found:
        """The file's columns by their field ids, and the values of those that only its partition tells."""
        found = by_field_id(parquet.schema_arrow, self.work.mapping)
        told = {
            one.field_id: decoded_array(one.type, file.constants[one.field_id])[0]
            for one in self.wanted.fields
            if one.field_id in file.constants and isinstance(one.type, Primitive)
            if found.get_field_index(str(one.field_id)) < 0
        }
        check(found, self.wanted, told)
        check_told(found, self.wanted, file.constants)
        return found, told

    def live(self) -> Iterator[pa.RecordBatch]:
        """The rows of all files that are not deleted; a file of which all are is not opened.

        Raises:
            Unsuitable: Values show that files must stay. All files are read to name each of them.
        """
        files = [file for file in self.work.files if len(file.deleted) < file.rows]
        for file in files:
            try:
                with _naming(file):
                    yield from self._live(file)
            except Unsuitable:
                self._name_all(_why(lambda one: deque(self._live(one), 0), file) for file in files)
                raise

    def _live(self, file: InputFile) -> Iterator[pa.RecordBatch]:
        at, nulls, columns = 0, Counter[str](), leaves(self.wanted)
        stays = pc.invert(mask_of(in_order(file.deleted), file.rows)) if file.deleted else None
        with self.opened(file) as parquet:
            found, told = self._found(file, parquet)
            for batch in parquet.iter_batches(rows_at_once(parquet, _AT_ONCE_BYTES), use_threads=False):
                rows = converted(batch, found, self.wanted, told)
                nulls.update(null_counts(rows, columns))
                live = rows if stays is None else rows.filter(stays.slice(at, batch.num_rows))
                at += batch.num_rows
                if live.num_rows:
                    yield live
            check_nulls(found, parquet.metadata, nulls)


def _why(read: Callable[[InputFile], object], file: InputFile) -> Mapping[str, str]:
    """Why a file must stay, by its path; empty if it can be read."""
    try:
        with _naming(file):
            read(file)
    except Unsuitable as error:
        return error.files
    return {}


@contextmanager
def _naming(file: InputFile) -> Iterator[None]:
    """Name the file in errors that are about it alone; those of the storage are not."""
    try:
        yield
    except Unsuitable as error:
        raise Unsuitable(str(error), {file.path: str(error)}) from None
    except (WriteError, pa.ArrowException) as error:  # also a value that a narrower type does not have
        if isinstance(error, WriteError) and not error.code.endswith("TABLE_FILE_UNREADABLE"):
            raise
        trouble = error.__cause__  # with a number that is not of a file which is gone: another try may succeed
        may_pass = isinstance(trouble, OSError) and trouble.errno not in (None, errno.ENOENT)
        reason = f"{'failed' if may_pass else 'unreadable'}: {describe(error)}"
        raise Unsuitable(reason, {file.path: reason}) from error


def _parts(reader: _Reader, new: DataFiles) -> Iterator[tuple[Partition, pa.Table, range | pa.Array]]:
    """The live rows as they are written: of one partition each, with their numbers among all live rows."""
    plan, partition = reader.work.plan, reader.work.partition
    chunks = joined(reader.live(), CHUNK_BYTES)
    fields = plan.partition_fields if partition is None else ()  # else files are closed before they are full
    by = [SortField(one.source_id, one.transform, is_descending=False, nulls_first=True) for one in fields]
    order = sort_keys(reader.wanted, [*by, *plan.sort_order])
    for table, numbers in sorted_ranges(chunks, order) if order else _numbered(chunks):
        if partition is not None:
            yield partition, table, numbers
            continue
        grouping = group(table, new.sources)
        for one, (place, rows) in zip(grouping.groups, grouping.split(grouping.groups), strict=True):
            at = numbers if grouping.order is None else numbers.take(grouping.order.cast(pa.int64()))
            yield place, rows, at[one.start : one.start + one.count]


def _numbered(chunks: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Table, Any]]:
    start = 0
    for chunk in chunks:
        yield pa.Table.from_batches([chunk]), range(start, start := start + len(chunk))
