"""Writes the live rows of data files into new ones: the same values in the same order, without the deleted rows.

A file whose columns are not exactly those that the plan writes is left alone, so no value is ever converted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from lakesink.keys.footers import field_id_of, open_parquet
from lakesink.keys.locate_errors import file_unreadable, reading
from lakesink.parquet.files import DataFiles
from lakesink.parquet.filesystem import NewFiles, many_at_once
from lakesink.parquet.partitions import Partition
from lakesink.parquet.positions import in_order, mask_of
from lakesink.rows.batches import rows_at_once
from lakesink.rows.plan import WritePlan
from lakesink.rows.schema import arrow_schema, parse_schema
from lakesink.rows.task_errors import rows_differ
from lakesink_protocol.change import ContentFile

TASK = 99_999
"""The task in the names of compacted files: tasks have other numbers in all but the largest jobs."""
_AT_ONCE_BYTES = 4 * 2**20
_ROW_GROUP_BYTES = 32 * 2**20
"""Of Arrow memory: a compaction runs in the driver."""


@dataclass(frozen=True, slots=True)
class ChosenFile:
    """A data file: its size and rows as its manifest states them, and which of these rows delete files delete."""

    path: str
    size_bytes: int
    rows: int
    deleted: BitMap64 = field(default_factory=BitMap64)


@dataclass(frozen=True, slots=True)
class Opened:
    """A chosen file whose content is in memory."""

    file: ChosenFile
    parquet: pq.ParquetFile


def open_all(files: Sequence[ChosenFile], open_input: Callable[[str], Any], plan: WritePlan) -> list[Opened]:
    """Read files of one storage as a whole, but for those that do not have exactly the columns that the plan writes.

    Columns are the same by ids, names, types and order.

    Raises:
        WriteError: A file is not what its manifest states.
    """
    if not files:
        return []
    wanted = _described(arrow_schema(parse_schema(plan.schema_json)))
    read = many_at_once(partial(_opened, open_input=open_input, wanted=wanted), files, files[0].path)
    return [opened for opened in read if opened is not None]


def rewrite(files: Sequence[Opened], partition: Partition, plan: WritePlan, storage: NewFiles) -> list[ContentFile]:
    """Write the live rows of files of one partition, which have the plan's columns; returns the new files, or none.

    After a failure, a file that was never closed is removed.
    """
    written, rows = list[ContentFile](), 0
    new = DataFiles.of(plan, TASK, written.append, storage)
    try:
        for table in _row_groups(files, min(_ROW_GROUP_BYTES, plan.parquet.row_group_size_bytes)):
            rows += table.num_rows
            new.write(partition, table)
        new.close()
    except BaseException:  # any end must remove an open file; it is raised again
        new.abandon()
        raise
    found = sum(file.record_count for file in written)
    live = sum(one.file.rows - len(one.file.deleted) for one in files)
    if not found == rows == live:
        raise rows_differ(live, found)
    return written


def _opened(file: ChosenFile, open_input: Callable[[str], Any], wanted: list[Any]) -> Opened | None:
    with reading(file.path, file_unreadable), open_input(file.path) as source:
        if _described(open_parquet(file.path, source, file.rows).schema_arrow) != wanted:
            return None
    with reading(file.path, file_unreadable), open_input(file.path) as source:
        data = source.read()
    if len(data) != file.size_bytes:
        raise file_unreadable(file.path, f"it has {len(data)} bytes, and its manifest has {file.size_bytes}")
    return Opened(file, open_parquet(file.path, pa.BufferReader(data), file.rows))


def _described(fields: Iterable[pa.Field]) -> list[Any]:
    """What makes columns the same. Arrow compares the name inside a map too, which is not in the table's schema."""
    return [(field.name, field.nullable, field_id_of(field), _type(field.type)) for field in fields]


def _type(kind: pa.DataType) -> Any:
    if pa.types.is_map(kind):
        return "map", _described([kind.key_field, kind.item_field])
    if pa.types.is_list(kind):
        return "list", _described([kind.value_field])
    return ("struct", _described(kind.fields)) if pa.types.is_struct(kind) else kind


def _row_groups(files: Sequence[Opened], most_bytes: int) -> Iterator[pa.Table]:
    """The live rows of all files in their order, in tables of about so many bytes."""
    held, held_bytes = list[pa.RecordBatch](), 0
    for one in files:
        for batch in _live(one):
            held.append(batch)
            held_bytes += batch.nbytes
            if held_bytes >= most_bytes:
                yield pa.Table.from_batches(held)
                held, held_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _live(one: Opened) -> Iterator[pa.RecordBatch]:
    """The rows of a file that are not deleted."""
    stays, at = None, 0  # no mask if all rows are live
    if one.file.deleted:
        stays = pc.invert(mask_of(in_order(one.file.deleted), one.file.rows))
    with reading(one.file.path, file_unreadable):
        for batch in one.parquet.iter_batches(rows_at_once(one.parquet, _AT_ONCE_BYTES), use_threads=False):
            live = batch if stays is None else batch.filter(stays.slice(at, batch.num_rows))
            at += batch.num_rows
            if live.num_rows:
                yield live.replace_schema_metadata(None)
