"""Locates the changes of a batch on a head: the delete files of the rows that they replace or remove."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from lakesink.keys.data_file import DataFile
from lakesink.keys.keys_files import TASK
from lakesink.keys.live_rows import positions_by_file
from lakesink.keys.locate_errors import keys_file_damaged
from lakesink.keys.newest import CHANGE, numbered, written
from lakesink.keys.resolve import Resolution, resolve
from lakesink.keys.scan import FILE, found_schema
from lakesink.parquet.deletes import DeletedRows, write_deletes
from lakesink.parquet.partitions import Partition
from lakesink.sinks.iceberg.rows_on_head import (
    BatchKeys,
    FoundRows,
    LocateMemory,
    LocateSettings,
    PreparedKeys,
    candidates,
    columns_of,
    live_rows_and_files,
    read_batch,
)
from lakesink_catalog.commit.located import Located
from lakesink_catalog.manifests.copying import AtOnce
from lakesink_catalog.manifests.live_reading import live_files
from lakesink_catalog.tables.locations import data_location
from lakesink_protocol.change import ContentFile
from lakesink_protocol.row_changes import ChangeCounts


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file of the batch itself, and the task that wrote it."""

    path: str
    task: int
    rows: int
    spec_id: int
    partition: Partition


@dataclass(slots=True)
class Locator:
    """Locates the changes of one batch; its call is the batch's `Locate`.

    Attributes:
        new_files: The data files of the batch; called only if a row of the batch itself has to be removed.
        stem: Start of the names of delete files.
        memory: The sink's memory of its table.
    """

    changes: PreparedKeys
    new_files: Callable[[Table], Sequence[NewFile]]
    stem: str
    memory: LocateMemory = field(default_factory=LocateMemory)
    at_once: AtOnce = map
    settings: LocateSettings = field(default_factory=LocateSettings)
    _batch: BatchKeys | None = field(default=None, init=False)
    _found: FoundRows | None = field(default=None, init=False)
    _last: Located | None = field(default=None, init=False)

    def __call__(self, table: Table, head: int | None) -> Located:
        """The deletes of the batch on this head; remembered until another head is asked for."""
        if self._last is None or self._last.head != head:
            self._last = self._locate(table, head)
        return self._last

    def _locate(self, table: Table, head: int | None) -> Located:
        if not self.changes.keys_files:
            return Located(head, counts=ChangeCounts(superseded=self.changes.superseded))
        batch = self._batch_for(table)
        live = live_files(table, head, self.memory.live, bounds_of=self.changes.key_ids, at_once=self.at_once)
        rows = self._found = self._found or FoundRows(found_schema(batch.columns).empty_table())
        rows.search(batch, table, candidates(table, live, batch), self.settings)
        self.memory.see(live)
        live_rows, on_head = live_rows_and_files(rows, live, batch.search, self.memory.deletes)
        resolution = resolve(batch.newest.changes, live_rows, on_head.ages, batch.columns)
        del live_rows  # as many as the batch has changes
        pa.default_memory_pool().release_unused()  # those, and what was compared
        own = self._masked(table, batch, resolution)
        deleted, replaced = on_head.after(resolution.removed)
        pa.default_memory_pool().release_unused()  # sorted positions
        self.memory.deletes.retain(on_head.deletes.keys() - {file.path for file in replaced})
        superseded = self.changes.superseded + batch.newest.superseded
        return Located(
            head,
            deletes=self._write(table, [*deleted, *own]),
            replaced=replaced,
            counts=replace(resolution.counts, superseded=superseded),
            masked=sum(len(rows.positions) for rows in own),
        )

    def _write(self, table: Table, deleted: Sequence[DeletedRows]) -> tuple[ContentFile, ...]:
        def create(location: str) -> Any:
            return table.io.new_output(location).create()

        if not deleted:
            return ()
        files = write_deletes(deleted, data_location(table), self.stem, create)
        for file, rows in zip(files, deleted, strict=True):
            self.memory.deletes.keep(file.path, rows.data_file, rows.positions)
        return tuple(files)

    def _batch_for(self, table: Table) -> BatchKeys:
        """The batch's keys. They are read again if a column was widened: values of the new type do not fit the old."""
        columns = columns_of(table, self.changes)
        if self._batch is None or self._batch.columns != columns:
            self._batch, self._found = read_batch(table, self.changes, columns, self.settings, self.memory), None
        return self._batch

    def _masked(self, table: Table, batch: BatchKeys, resolution: Resolution) -> list[DeletedRows]:
        """The rows of the batch itself without effect: of late upserts, and of upserts that another task supersedes."""
        changes = batch.newest.changes
        late = written(changes.filter(pc.is_in(changes[CHANGE], resolution.late)))
        unwanted = pa.concat_tables([batch.newest.masked, late.select(batch.newest.masked.column_names)])
        if not unwanted.num_rows:
            return []
        tasks = set(unwanted[TASK].unique().to_pylist())
        files = [file for file in self.new_files(table) if file.task in tasks]
        found = batch.search.find([DataFile(file.path, file.rows) for file in files], numbered(unwanted))
        written_by = pc.take(pa.array([file.task for file in files], pa.int32()), found[FILE])
        own = found.filter(pc.equal(written_by, pc.take(unwanted[TASK], found[CHANGE])))
        if own.num_rows != unwanted.num_rows:
            path = self.changes.keys_files[0].path
            raise keys_file_damaged(path, "the data files of a task do not have exactly one row of each key")
        return [
            DeletedRows(files[place].path, files[place].spec_id, files[place].partition, positions)
            for place, positions in positions_by_file(own).items()
        ]
