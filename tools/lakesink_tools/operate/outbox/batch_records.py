"""All records of one committed batch: its rows as JSON, keyed by key columns, and a tombstone for each deleted key."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyroaring import BitMap64

from lakesink.keys.data_file import constants_of
from lakesink.keys.deleted_rows import KnownDeletes, read_deleted
from lakesink.keys.footers import name_mapping
from lakesink.keys.live_rows import OldDeletes
from lakesink.parquet.filesystem import open_filesystem, shareable_properties
from lakesink.parquet.positions import in_order
from lakesink.read.batch_files import BatchFiles
from lakesink.read.file_rows import RowsFile, RowsPart
from lakesink.read.reading_errors import batch_gone
from lakesink.read.values import readable_schema
from lakesink.rows.lines import LineEncoder
from lakesink.rows.schema import parse_schema
from lakesink_catalog.manifests.live import LiveFile
from lakesink_catalog.manifests.live_reading import LiveMemory, live_files
from lakesink_catalog.read.past import Past
from lakesink_protocol.errors import SettingsError, WriteError
from lakesink_protocol.redact import describe, shown
from lakesink_protocol.suggest import did_you_mean

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_NOWHERE = BitMap64()


@dataclass(slots=True)
class BatchRecords:
    """Reads the records of one batch, and counts them as they are read.

    A batch that replaced or deleted rows has a tombstone for each key that had a row before it and has none after it:
    a key has at most one row, see `lakesink_tools.operate.outbox.position.check_unique`.
    """

    table: Table
    past: Past
    batch: BatchFiles
    keys: Sequence[str]
    memory: LiveMemory
    rows: int = 0
    removed: int = 0

    def read(self) -> Iterator[pa.RecordBatch]:
        """The records, again from the first one each time.

        Raises:
            CatalogError: READ_BATCH_GONE if the snapshot before a batch that deleted rows has expired.
        """
        self.rows, self.removed = 0, 0
        written: set[bytes] = set()
        records = RowRecords.of_schema(self.batch.schema_json, self.keys)
        io, names = shareable_properties(self.table.io.properties), name_mapping(self.table.properties)
        part = RowsPart((), self.batch.schema_json, io, self.table.catalog.name, names)
        old, new = self._taken_away(part)
        for file in self.batch.data:
            source = RowsFile(file.path, file.record_count, file.file_size_bytes, self.batch.batch.title)
            for rows in _rows_at(source, new.get(file.path, _NOWHERE), part, inside=False):
                found = records.of(rows)
                self.rows += found.num_rows
                if self.batch.deletes:
                    written.update(found.column("key").to_pylist())
                yield found
        for source, positions in old:
            for rows in _rows_at(source, positions, part, inside=True):
                found = records.removals(rows, written)
                self.removed += found.num_rows
                yield found

    def _taken_away(self, part: RowsPart) -> tuple[Sequence[tuple[RowsFile, BitMap64]], Mapping[str, BitMap64]]:
        """Positions that the batch deleted: live ones in files before it, and those in its own files, by path."""
        table, batch = self.table, self.batch
        if not batch.deletes:
            return (), {}
        parent = batch.batch.parent_snapshot_id
        if parent is not None and table.metadata.snapshot_by_id(parent) is None:
            raise batch_gone(self.past.table, batch.batch, len(batch.data))
        before = live_files(table, parent, self.memory)
        data = {file.path: file for file in (*before.data, *batch.data)}
        now = _positions(batch.deletes, data, part)
        earlier = _positions(before.deletes, now, part)
        gone = {path: positions - earlier.get(path, _NOWHERE) for path, positions in now.items()}
        new = {file.path: gone.pop(file.path) for file in batch.data if file.path in gone}
        return [(self._source(data[path]), positions) for path, positions in gone.items() if positions], new

    def _source(self, file: LiveFile) -> RowsFile:
        """A file that was there before; it may be one of another program."""
        fields = self.table.specs()[file.spec_id].fields
        told = constants_of(file.partition, fields, {one.source_id for one in fields})
        return RowsFile(file.path, file.record_count, file.file_size_bytes, self.batch.batch.title, told)


def _rows_at(file: RowsFile, positions: BitMap64, part: RowsPart, *, inside: bool) -> Iterator[pa.RecordBatch]:
    """The rows of a data file at these positions; without `inside`, all others."""
    start, wanted_places = 0, in_order(positions)
    for rows in replace(part, files=(file,)).rows():
        places = pa.array(range(start, start + rows.num_rows), pa.int64())
        wanted = pc.is_in(places, value_set=wanted_places)
        yield rows.filter(wanted if inside else pc.invert(wanted))
        start += rows.num_rows


def _positions(deletes: Sequence[LiveFile], data: Iterable[str], part: RowsPart) -> Mapping[str, BitMap64]:
    """The positions that delete files have, by those data files that are of interest."""
    paths = frozenset(data)
    wanted = [
        OldDeletes(file.path, file.record_count, named, bool(file.referenced_data_file))
        for file in deletes
        if (named := paths & {file.referenced_data_file} if file.referenced_data_file else paths)
    ]

    def open_input(location: str) -> Any:
        filesystem, path_of = open_filesystem(location, part.file_io, part.catalog_name)
        return filesystem.open_input_file(path_of(location))

    return read_deleted(wanted, open_input, KnownDeletes()).positions


@dataclass(frozen=True, slots=True)
class RowRecords:
    """Makes records of the rows of one schema; without key columns, records have no key."""

    schema: pa.Schema
    keys: Sequence[str]

    @classmethod
    def of_schema(cls, schema_json: str, keys: Sequence[str]) -> "RowRecords":
        """For rows as `lakesink.read.file_rows` reads them in this schema of the table."""
        schema = readable_schema(parse_schema(schema_json))
        for key in keys:
            if key not in schema.names:
                raise SettingsError.of("OUTBOX_KEY", key=shown(key, 60), near=did_you_mean(key, schema.names))
        return cls(schema, keys)

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """One record for each row."""
        return pa.RecordBatch.from_arrays([self._keys(rows), _lines(rows, self.schema)], schema=SCHEMA)

    def removals(self, rows: pa.RecordBatch, written: Collection[bytes]) -> pa.RecordBatch:
        """One record without a value for each row whose key the batch has not written."""
        keys = [key for key in self._keys(rows).to_pylist() if key not in written]
        return pa.RecordBatch.from_arrays(
            [pa.array(keys, pa.binary()), pa.nulls(len(keys), pa.binary())], schema=SCHEMA
        )

    def _keys(self, rows: pa.RecordBatch) -> pa.Array:
        if not self.keys:
            return pa.nulls(rows.num_rows, pa.binary())
        return _lines(rows.select(list(self.keys)), pa.schema([self.schema.field(name) for name in self.keys]))


def _lines(rows: pa.RecordBatch, schema: pa.Schema) -> pa.Array:
    """JSON without line breaks of its own: each row is one line."""
    try:
        lines = LineEncoder(schema).encode(rows).split(b"\n")[:-1]
    except ValueError as error:
        raise WriteError.of("LOSSY_VALUE.json", error=describe(error)[:120]) from error
    return pa.array(lines, pa.binary())
