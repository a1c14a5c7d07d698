"""How the Iceberg sink commits changes of rows by key: what it refuses, and what locates them on a head.

Locating gives the delete files of the rows that the changes replace or remove.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from lakesink.checkpoint.offsets import is_kafka_offset, parse_offsets
from lakesink.keys.data_file import DataFile
from lakesink.keys.keys_file import TASK
from lakesink.keys.live_rows import positions_by_file
from lakesink.keys.locate_errors import keys_file_damaged, sequence_of_partitions
from lakesink.keys.newest import CHANGE, numbered, written
from lakesink.keys.resolve import Resolution, resolve
from lakesink.keys.scan import FILE, found_schema
from lakesink.keys.work import RunInExecutors
from lakesink.parquet.deletes import DeletedRows, write_deletes
from lakesink.parquet.locations import task_of
from lakesink.rows.changed_rows import POSITIONS
from lakesink.rows.plan import ChangesPlan
from lakesink.settings.option_types import Deletes, LocateIn, OnAbsent, OnLate
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg import rows_on_head
from lakesink.sinks.iceberg.checked_receipts import CombinedReceipts
from lakesink_catalog.commit.evolution import evolve
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.commit.table_change import Locate, Located
from lakesink_catalog.manifests.copying import AtOnce
from lakesink_catalog.manifests.live import LiveFile
from lakesink_catalog.manifests.live_entries import Origin, live_entries
from lakesink_catalog.manifests.live_reading import live_files
from lakesink_catalog.tables.locations import data_location
from lakesink_catalog.words import counted
from lakesink_protocol.change import ContentFile, SchemaChange
from lakesink_protocol.errors import WriteError
from lakesink_protocol.identity import Batch
from lakesink_protocol.row_changes import SUPERSEDED, ChangeCounts


@dataclass(slots=True)
class Locator:
    """Locates the changes of one batch; its call is the batch's `Locate`.

    Attributes:
        new_files: The data files of the batch; called only if a row of the batch itself has to be removed.
        stem: Start of the names of delete files.
        memory: The sink's memory of its table.
    """

    changes: PreparedChanges
    new_files: Callable[[Table], Sequence[LiveFile | ContentFile]]
    stem: str
    memory: rows_on_head.LocateMemory = field(default_factory=rows_on_head.LocateMemory)
    at_once: AtOnce = map
    settings: rows_on_head.LocateSettings = field(default_factory=rows_on_head.LocateSettings)
    _batch: rows_on_head.BatchKeys | None = field(default=None, init=False)
    _found: rows_on_head.FoundRows | None = field(default=None, init=False)
    _last: Located | None = field(default=None, init=False)

    def __call__(self, table: Table, head: int | None) -> Located:
        """The deletes of the batch on this head; remembered until another head is asked for."""
        if self._last is None or self._last.head != head:
            self._last = self._locate(table, head)
        return self._last

    def _locate(self, table: Table, head: int | None) -> Located:
        if not self.changes.keys_files:
            return Located(head, counts=ChangeCounts(superseded=self.changes.left_out))
        batch = self._batch_for(table)
        live = live_files(table, head, self.memory.live, bounds_of=self.changes.key_ids, at_once=self.at_once)
        rows = self._found = self._found or rows_on_head.FoundRows(found_schema(batch.columns).empty_table())
        rows.search(batch, table, rows_on_head.candidates(table, live, batch), self.settings)
        self.memory.see(live)
        live_rows, on_head = rows_on_head.live_rows_and_files(rows, live, batch.search, self.memory.deletes)
        resolution = resolve(batch.newest.changes, live_rows, on_head.ages, batch.columns)
        del live_rows  # as many as the batch has changes
        pa.default_memory_pool().release_unused()  # those, and what was compared
        own = self._masked(table, batch, resolution)
        deleted, replaced = on_head.after(resolution.removed)
        pa.default_memory_pool().release_unused()  # sorted positions
        self.memory.deletes.retain(on_head.deletes.keys() - {file.path for file in replaced})
        superseded = self.changes.left_out + batch.newest.without_effect
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

    def _batch_for(self, table: Table) -> rows_on_head.BatchKeys:
        """The batch's keys. They are read again if a column was widened: values of the new type do not fit the old."""
        columns = rows_on_head.columns_of(table, self.changes)
        if self._batch is None or self._batch.columns != columns:
            self._batch = rows_on_head.read_batch(table, self.changes, columns, self.settings, self.memory)
            self._found = None
        return self._batch

    def _masked(self, table: Table, batch: rows_on_head.BatchKeys, resolution: Resolution) -> list[DeletedRows]:
        """The rows of the batch itself without effect: of late upserts, and of upserts that another task supersedes."""
        changes = batch.newest.changes
        late = written(changes.filter(pc.is_in(changes[CHANGE], resolution.late)))
        unwanted = pa.concat_tables([batch.newest.masked, late.select(batch.newest.masked.column_names)])
        if not unwanted.num_rows:
            return []
        tasks = set(unwanted[TASK].unique().to_pylist())
        files = [file for file in self.new_files(table) if task_of(file.path) in tasks]
        found = batch.search.find([DataFile(file.path, file.record_count) for file in files], numbered(unwanted))
        written_by = pc.take(pa.array([task_of(file.path) for file in files], pa.int32()), found[FILE])
        own = found.filter(pc.equal(written_by, pc.take(unwanted[TASK], found[CHANGE])))
        if own.num_rows != unwanted.num_rows:
            path = self.changes.keys_files[0].path
            raise keys_file_damaged(path, "the data files of a task do not have exactly one row of each key")
        return [
            DeletedRows(files[place].path, files[place].spec_id, files[place].partition, positions)
            for place, positions in positions_by_file(own).items()
        ]


@dataclass(frozen=True, slots=True)
class ChangesByKey:
    """Locates the batches of one sink.

    Attributes:
        run: Runs in executors; None where there is no session.
        are_replayed: True if the changes were dead letters.
        memory: Kept from batch to batch.
    """

    settings: Settings
    run: RunInExecutors | None
    at_once: AtOnce
    are_replayed: bool = False
    memory: rows_on_head.LocateMemory = field(default_factory=rows_on_head.LocateMemory)

    def check_sequence(self, batch: Batch) -> None:
        """See `check_sequence`. Before a replay, its order was compared with that of its sink."""
        if not self.are_replayed:
            check_sequence(self.settings, batch)

    def locate(self, prepared: PreparedBatch, changes: PreparedChanges, file_stem: str) -> Locate:
        """What locates a prepared batch, which has these changes, on a head."""
        new_files, where = partial(_new_files, prepared), self.settings.locate_in
        how = rows_on_head.LocateSettings(
            workers=None if where is LocateIn.DRIVER else self.run,
            workers_from_bytes=0 if where is LocateIn.EXECUTORS else rows_on_head.WORKERS_FROM_BYTES,
        )
        locator = Locator(changes, new_files, file_stem, self.memory, self.at_once, how)
        return partial(self._checked, locator, prepared.schema_change)

    def _checked(self, locator: Locator, change: SchemaChange | None, table: Table, head: int | None) -> Located:
        """What is located, unless the settings refuse it. A key that the batch widens is compared as the wider type."""
        located, settings = locator(evolve(table, change).table, head), self.settings
        counts, name = located.counts, ".".join(table.name())
        late = counts.late_upserts + counts.late_deletes
        if late and settings.on_late is OnLate.FAIL:
            raise WriteError.of("CHANGES_LATE", name=name, changes=counted(late, "change"))
        knows_deletes = not self.are_replayed or settings.deletes is Deletes.SOFT
        if counts.inserted and not knows_deletes and settings.on_absent is OnAbsent.FAIL:
            raise WriteError.of("KEYS_ABSENT", name=name, changes=counted(counts.inserted, "change"))
        return located


def check_sequence(settings: Settings, batch: Batch) -> None:
    """Refuse positions in Kafka as the sequence unless the batch's offsets prove that there is one partition.

    Kafka's offsets name all partitions that the query reads, also those without new records, and after a restart.
    Other offsets, and a batch job, name none: the next batch can have records of another partition.
    """
    first = settings.sequence_by[0] if settings.sequence_by else ""
    if first.lower() not in POSITIONS:
        return
    sources = [one for one in parse_offsets(batch.offsets).values() if one is not None]
    topics = [topic for source in sources if is_kafka_offset(source) for topic in source.values()]
    partitions = sum(map(len, topics))
    if partitions != 1 or not all(map(is_kafka_offset, sources)):
        raise sequence_of_partitions(first, are_several=partitions > 1)


def prepared_changes(plan: ChangesPlan, counted: CombinedReceipts, changelog: str) -> PreparedChanges:
    """What a record keeps of the changes of a batch."""
    left_out = counted.changed[SUPERSEDED]
    return PreparedChanges(plan.keys, plan.sequence, counted.keys_files, left_out, plan.mode, changelog)


def _new_files(prepared: PreparedBatch, table: Table) -> list[LiveFile]:
    """The batch's own data files, from its manifests: an earlier process may have written them."""
    found: list[LiveFile] = []
    for manifest in prepared.manifests:
        with table.io.new_input(manifest.path).open() as stream:
            origin = Origin(manifest.path, manifest.spec_id, sequence_number=0, deletes=False)
            found += live_entries(stream.read(), origin, frozenset()).files
    return found
