"""All records of one committed batch: its rows, and a tombstone for each key that it deleted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.table import Table

from lakesink.keys.footers import name_mapping
from lakesink.parquet.filesystem import shareable_properties
from lakesink.read.batch_files import BatchFiles
from lakesink.read.file_rows import RowsFile, RowsPart
from lakesink_catalog.manifests.live_reading import LiveMemory
from lakesink_catalog.read.past import Past
from lakesink_tools.operate.outbox.deleted import NOWHERE, rows_at, taken_away
from lakesink_tools.operate.outbox.records import RowRecords


@dataclass(slots=True)
class BatchRecords:
    """Reads the records of one batch, and counts them as they are read.

    A batch that replaced or deleted rows has a tombstone for each key that had a row before it and has none after it:
    a key has at most one row, see `lakesink_tools.operate.outbox.keys.check_unique`.
    """

    table: Table
    past: Past
    batch: BatchFiles
    keys: Sequence[str]
    memory: LiveMemory
    rows: int = 0
    removed: int = 0
    _written: set[bytes] = field(default_factory=set, init=False)

    def read(self) -> Iterator[pa.RecordBatch]:
        """The records, again from the first one each time."""
        self.rows, self.removed, self._written = 0, 0, set()
        records, part = RowRecords.of_schema(self.batch.schema_json, self.keys), self._part()
        gone = taken_away(self.table, self.past, self.batch, part, self.memory)
        for file in self.batch.data:
            source = RowsFile(file.path, file.record_count, file.file_size_bytes, self.batch.batch.title)
            for rows in rows_at(source, gone.new.get(file.path, NOWHERE), part, inside=False):
                yield self._of_rows(records.of(rows))
        for source, positions in gone.old:
            for rows in rows_at(source, positions, part, inside=True):
                yield self._of_deleted(records, records.keys_of(rows))

    def _of_rows(self, found: pa.RecordBatch) -> pa.RecordBatch:
        self.rows += found.num_rows
        if self.batch.deletes:
            self._written.update(found.column("key").to_pylist())
        return found

    def _of_deleted(self, records: RowRecords, keys: pa.Array) -> pa.RecordBatch:
        found = [key for key in keys.to_pylist() if key not in self._written]
        self.removed += len(found)
        return records.removals(found)

    def _part(self) -> RowsPart:
        io = shareable_properties(self.table.io.properties)
        names = name_mapping(self.table.properties)
        return RowsPart((), self.batch.schema_json, io, self.table.catalog.name, names)
