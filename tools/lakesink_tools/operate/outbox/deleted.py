"""The rows that one batch of changes took away, from its delete files and those that were there before."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyroaring import BitMap64

from lakesink.keys.data_file import constants_of
from lakesink.keys.deleted_rows import KnownDeletes, read_deleted
from lakesink.keys.live_rows import OldDeletes
from lakesink.parquet.filesystem import open_filesystem
from lakesink.parquet.positions import in_order
from lakesink.read.batch_files import BatchFiles
from lakesink.read.file_rows import RowsFile, RowsPart
from lakesink.read.reading_errors import batch_gone
from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_catalog.manifests.live_reading import LiveMemory, live_files
from lakesink_catalog.read.past import Past

NOWHERE = BitMap64()
Positions = Mapping[str, BitMap64]


@dataclass(frozen=True, slots=True)
class TakenAway:
    """Positions by data file that a batch deleted, and that were live before it or that it wrote itself.

    Attributes:
        old: In data files that were there before.
        new: In the batch's own data files.
    """

    old: Sequence[tuple[RowsFile, BitMap64]]
    new: Positions


def taken_away(table: Table, past: Past, batch: BatchFiles, part: RowsPart, memory: LiveMemory) -> TakenAway:
    """What a batch deleted.

    Raises:
        CatalogError: READ_BATCH_GONE if the snapshot before the batch has expired.
    """
    if not batch.deletes:
        return TakenAway((), {})
    before = _before(table, past, batch, memory)
    data = {file.path: file for file in (*before.data, *batch.data)}
    now = _positions(batch.deletes, data, part)
    earlier = _positions(before.deletes, now, part)
    found = {path: positions - earlier.get(path, NOWHERE) for path, positions in now.items()}
    own = {file.path for file in batch.data}
    old = [(_rows_file(table, data[path], batch), gone) for path, gone in found.items() if path not in own and gone]
    return TakenAway(old, {path: gone for path, gone in found.items() if path in own})


def rows_at(file: RowsFile, positions: BitMap64, part: RowsPart, *, inside: bool) -> Iterator[pa.RecordBatch]:
    """The rows of a data file at these positions; without `inside`, all others."""
    start, wanted_places = 0, in_order(positions)
    for rows in _with_file(part, file).rows():
        places = pa.array(range(start, start + rows.num_rows), pa.int64())
        wanted = pc.is_in(places, value_set=wanted_places)
        yield rows.filter(wanted if inside else pc.invert(wanted))
        start += rows.num_rows


def _with_file(part: RowsPart, file: RowsFile) -> RowsPart:
    return replace(part, files=(file,))


def _before(table: Table, past: Past, batch: BatchFiles, memory: LiveMemory) -> LiveFiles:
    """The live files of the snapshot before the batch; they are in the table's metadata, or they are refused."""
    parent = batch.batch.parent_snapshot_id
    if parent is not None and table.metadata.snapshot_by_id(parent) is None:
        raise batch_gone(past.table, batch.batch, len(batch.data))
    return live_files(table, parent, memory)


def _positions(deletes: Sequence[LiveFile], data: Mapping[str, Any], part: RowsPart) -> Positions:
    """The positions that delete files have, by those data files that are of interest."""
    paths = frozenset(data)
    wanted = [
        OldDeletes(file.path, file.record_count, named, bool(file.referenced_data_file))
        for file in deletes
        if (named := paths & {file.referenced_data_file} if file.referenced_data_file else paths)
    ]
    return read_deleted(wanted, partial(_open, part), KnownDeletes()).positions


def _open(part: RowsPart, location: str) -> Any:
    filesystem, path_of = open_filesystem(location, part.file_io, part.catalog_name)
    return filesystem.open_input_file(path_of(location))


def _rows_file(table: Table, file: LiveFile, batch: BatchFiles) -> RowsFile:
    """The file may be one of another program."""
    fields = table.specs()[file.spec_id].fields
    told = constants_of(file.partition, fields, {one.source_id for one in fields})
    return RowsFile(file.path, file.record_count, file.file_size_bytes, batch.batch.title, told)
