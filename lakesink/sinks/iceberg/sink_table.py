"""The table that a sink writes to: a run's first batch opens or creates it, each one loads it and gets its fence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink.settings.settings import Settings, policy_of
from lakesink.sinks.iceberg.logs import KeysFiles, ReportedLog, UnrecordedLog
from lakesink.sinks.iceberg.preflight import create_for_rows
from lakesink.sinks.iceberg.table_layout import check_partitions, check_sort_by
from lakesink_catalog.commit.batch_change import CommitOptions
from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.clock import ClockWatch
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.left_out import LeftOut
from lakesink_catalog.commit.premises import Path
from lakesink_catalog.commit.prepared import TableLog
from lakesink_catalog.manifests.merging import MergeMemory
from lakesink_catalog.tables.locations import metadata_location
from lakesink_catalog.tables.tables import TABLE_MISSING, load_table
from lakesink_protocol import events
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import Batch, SinkKey, SinkKind
from lakesink_protocol.refusals.texts import Words
from lakesink_protocol.two_phase import PreparedLog

if TYPE_CHECKING:
    from lakesink.sinks.iceberg.upkeep.maintenance import UpkeepMemory


@dataclass(slots=True)
class RunMemory:
    """What a run remembers of its table from batch to batch; callers that create a sink for each batch keep it.

    Attributes:
        reported: Columns and keys that a warning has named, to name each only once.
        refused_keys: Keys of documents that could not become columns: documents with no other news need no votes.
        upkeep: Of maintenances, by table; that of the branch has an empty name.
        left_out: What the run has seen the catalog leave out.
        clock: Watches the driver's clock; None before the first batch.
        ended_ms: When the newest batch ended; None before.
        waited_ms: How long the query then waited for the next one; None before the second one.
    """

    reported: set[str] = field(default_factory=set)
    refused_keys: set[Path] = field(default_factory=set)
    merges: MergeMemory = field(default_factory=MergeMemory)
    upkeep: "dict[str, UpkeepMemory]" = field(default_factory=dict)
    left_out: LeftOut = field(default_factory=LeftOut)
    clock: ClockWatch | None = None
    ended_ms: int | None = None
    waited_ms: int | None = None

    def begins(self, now_ms: int) -> None:
        """A batch begins."""
        if self.ended_ms is not None:
            self.waited_ms = now_ms - self.ended_ms


@dataclass(slots=True)
class SinkTable:
    """The table of one sink; opens nothing before the first batch.

    Attributes:
        uuid: Of the table that the run's first batch found; every later batch must find a table with it.
    """

    table: str
    key: SinkKey
    open_catalog: Callable[[], Catalog]
    settings: Settings
    effects: Effects
    memory: RunMemory
    words: Sequence[Words]
    uuid: str = field(default="", init=False)
    _found: Table | None = field(default=None, init=False)
    _records: TableLog | None = field(default=None, init=False)
    _catalog: Catalog | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """Table and branch."""
        return f"{self.table}@{self.key.branch}"

    @property
    def found(self) -> Table:
        """The table as the batch at hand found it."""
        assert self._found is not None, "the table is the first participant that begins"
        return self._found

    @property
    def records(self) -> TableLog:
        """The prepared records of the sink, in the folder of the table that the first batch found."""
        assert self._records is not None, "as above"
        return self._records

    def open(self, batch: Batch, rows: pa.Schema) -> Table:
        """The table for a batch; a first one creates it for such rows, if the settings say so."""
        if self._records is not None:
            self._found = self.load()
            return self._found
        self._found = self._load_or_create(batch, rows)
        check_partitions(self._found, self.settings.partition_by, self.effects.emit)
        check_sort_by(self._found, self.settings.sort_by, self.effects.emit)
        if not self.settings.ledger_tag:
            self.effects.emit(events.LedgerTagOff(self.table, self.key.name))
        self.uuid = str(self._found.metadata.table_uuid)
        self._records = TableLog(
            io=self._found.io,
            folder=f"{metadata_location(self._found)}/{self.key.record_folder}",
            key=self.key,
            max_age_ms=_milliseconds(self.settings.prepared_max_age),
            now_ms=self.effects.now_ms,
            emit=self.effects.emit,
        )
        return self._found

    def load(self) -> Table:
        """The table as the catalog shows it now."""
        return load_table(self.connected(), self.table)

    def connected(self) -> Catalog:
        """The catalog, which the first batch opens."""
        if self._catalog is None:
            self._catalog = self.open_catalog()
        return self._catalog

    def fence(self) -> FencedCommit:
        """How a batch is committed to the table as it was found."""
        effective = self.settings.effective(self.found.properties, self.effects.emit)
        properties = {**self.settings.snapshot_properties, **policy_of(self.settings)}
        options = CommitOptions(
            accept=self.settings.accept,
            ledger_tag=self.settings.ledger_tag,
            ledger_tag_max_age_ms=_milliseconds(self.settings.ledger_tag_max_age),
            tag_every=self.settings.tag_every,
            tag_max_age_ms=_milliseconds(self.settings.tag_max_age),
            snapshot_properties=tuple(sorted(properties.items())),
            retry=effective.retry,
            merge=effective.merge,
            prepared_max_age_ms=_milliseconds(self.settings.prepared_max_age),
        )
        memory, turn = self.memory, partial(self.effects.turn, self.found, self.effects.emit)
        memory.clock = memory.clock or ClockWatch(_milliseconds(self.settings.max_clock_ahead))
        of_run = memory.merges, memory.clock, self.words, turn
        return FencedCommit(self.load, self.key, self.uuid, options, self.effects, *of_run, memory.left_out)

    def log(self, table: Table, *, changes_by_key: bool) -> PreparedLog:
        """Where the batch that is written to this table is prepared."""
        keys_files = KeysFiles(table, self.name, self.key, self.effects)
        if self.key.kind is SinkKind.TXN:
            return UnrecordedLog(keys_files, self.check_tags)
        return ReportedLog(self.records, self.effects, keys_files if changes_by_key else None, self.check_tags)

    def check_tags(self, batch: Batch) -> None:
        """Stop a query that wants tags if its run has seen the catalog leave them out."""
        if self.settings.tag_every is not None and self.memory.left_out.tags:
            raise CatalogError.of("CATALOG_WITHOUT_TAGS.tag_every", batch_id=batch.batch_id, table=self.table)

    def _load_or_create(self, batch: Batch, rows: pa.Schema) -> Table:
        """Only a first batch creates its table: if a later batch finds no table, the table was dropped."""
        try:
            return self.load()
        except CatalogError as error:
            first = batch.batch_id == 0 or self.key.kind is SinkKind.TXN
            if error.code != TABLE_MISSING or not self.settings.create_table:
                raise
            if not first:
                before = "batch 0" if batch.batch_id == 1 else f"batches 0 to {batch.batch_id - 1}"
                raise CatalogError.of(
                    "TABLE_MISSING.dropped", table=self.table, batch_id=batch.batch_id, before=before
                ) from None
        table = create_for_rows(self.connected(), self.table, self.key, self.settings, rows)
        self.effects.emit(events.TableCreated(batch.batch_id, self.table))
        return table


def _milliseconds(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1000)
