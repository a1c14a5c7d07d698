"""Readers of ``format("lakesink")``: a stream over the batches of a sink, whose offset is a batch.

Spark asks for offsets and plans in one Python process, which lives as long as a run of the query. A planner's process
makes a second reader, which it only pickles for the executors. None of them has a Spark session. Since Spark 4.2, the
reader gets the position with each question, and limits; in 4.1 it must know by itself where it is.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import datasource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from lakesink._version import __version__
from lakesink.parquet.filesystem import shareable_properties
from lakesink.read.batch_files import BatchFiles, files_of
from lakesink.read.begin import AtBatch, AtTime, Begin, Beginning, beginning, followed
from lakesink.read.file_rows import RowsFile, RowsPart, divided
from lakesink.read.follow import batches_between, commits_after, newest_position, unread_batches
from lakesink.read.hold import set_hold
from lakesink.read.position import Position, parse_offset
from lakesink.read.reading_errors import schema_changed
from lakesink.read.steps import Follows, SinkBatches, Unread, behind, is_read_at, up_to
from lakesink.read.values import readable_schema, unknown_columns, unreadable_columns
from lakesink.rows.schema import parse_schema
from lakesink.settings.options_of_reading import LATEST, ReadSettings
from lakesink.spark.rows.worker_reuse import make_reuse_cheap
from lakesink.spark.source.connect import check_lasts
from lakesink.spark.source.source_tasks import RowsPartition, RowsReader
from lakesink.spark.spark_errors import presentable
from lakesink_catalog.commit.left_out import check_keeps_refs
from lakesink_catalog.connect.catalog import CatalogConfig
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.read.past import Past, PastCommit
from lakesink_catalog.tables.tables import load_table, parse_identifier
from lakesink_protocol import events
from lakesink_protocol.errors import CatalogError, SettingsError
from lakesink_protocol.redact import contains_secret

WAITS_SECONDS = 60
"""A query that waits says so as often: the batches that it waits for may never come."""
SECONDS_BETWEEN_HOLDS = 600
ADMITS = hasattr(datasource, "ReadLimit")
"""True if this Spark asks a Python source for offsets with a position and a limit: since version 4.2."""


@dataclass(slots=True)
class Progress:
    """Emits the events of one run of a reading query: nothing is left out silently.

    Attributes:
        _seen: Sequence number of the newest snapshot of others that was reported.
        clock: Seconds.
        _told_at: When it was told last that the table is rolled back behind the position; None while it is not.
    """

    table: str
    sink: str
    emit: events.Listeners = LISTENERS
    clock: Callable[[], float] = time.monotonic
    _seen: int = -1
    _told_at: float | None = None

    def found(self, past: Past, unread: Unread) -> None:
        """Report rows of other writers, each snapshot once, and what was rolled back, each minute until it is back."""
        new = [commit for commit in unread.others if commit.sequence_number > self._seen]
        if new:
            self._seen = new[-1].sequence_number
            rows = sum(commit.rows for commit in new)
            self.emit(events.OthersNotRead(past.table, self.sink, len(new), rows))
        if not unread.is_rolled_back and not unread.lost_replay:
            self._told_at = None
        elif self._told_at is None or self.clock() - self._told_at >= WAITS_SECONDS:
            self._told_at = self.clock()
            rolled_back = events.ReadWaits(past.table, self.sink)
            lost = events.ReplayLost(past.table, self.sink, unread.lost_replay)
            self.emit(rolled_back if unread.is_rolled_back else lost)

    def planned(self, batches: Sequence[BatchFiles]) -> None:
        """Report the batches of a micro-batch."""
        if not batches:
            return
        ends = _short(batches[0].batch), _short(batches[-1].batch)
        counts = len(batches), sum(len(one.data) for one in batches), sum(one.batch.rows for one in batches)
        self.emit(events.ReadPlanned(self.table, self.sink, *ends, *counts))


def _short(batch: PastCommit) -> str:
    return f"replay-{batch.batch_id}" if batch.is_replay else str(batch.batch_id)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What ``load()`` found: whose batches are read, and the columns of the query."""

    sink: SinkBatches
    schema_json: str

    def to_json(self) -> str:
        """As text, because executors get it too and cannot import this module."""
        sink = self.sink
        return json.dumps([sink.sink, sink.branch, sink.follows.name, self.schema_json])

    @classmethod
    def from_json(cls, text: str) -> "Loaded":
        """From `to_json`."""
        name, branch, follows, schema_json = json.loads(text)
        return cls(SinkBatches(name, branch, Follows[follows]), schema_json)


def load(options: Mapping[str, str]) -> tuple[StructType, str]:
    """The columns of the query, and `Loaded` as text."""
    make_reuse_cheap()
    with presentable():
        settings = read_settings(options)
        table = load_table(open_catalog(settings), settings.table)
        if settings.reader_id:
            check_keeps_refs("reader-id", table.catalog.properties)
        sink = followed(table, settings.table, settings.sink_id, settings.branch)
        schema_json = table.schema().model_dump_json()
        schema = parse_schema(schema_json)
        for column in unreadable_columns(schema):
            raise CatalogError.of("TYPE_UNSUPPORTED.time_of_day", column=column[:60], table=settings.table)
        columns = from_arrow_schema(readable_schema(schema), prefer_timestamp_ntz=True)
        return columns, Loaded(sink, schema_json).to_json()


def stream_reader(options: Mapping[str, str], loaded: str, kind: "type[BatchesReader]") -> "BatchesReader":
    """The reader of one query, of this class; opens nothing."""
    with presentable():
        settings = read_settings(options)
        if not loaded:
            raise SettingsError.of("READ_SCHEMA_GIVEN")
        return kind(settings, Loaded.from_json(loaded))


def read_settings(options: Mapping[str, str]) -> ReadSettings:
    """Parse the options of a reading query; their letter case does not matter."""
    given = {key.lower(): value for key, value in options.items()}
    for key, value in given.items():
        if contains_secret(key, value):
            raise SettingsError.of("OPTION_SECRET", key=key[:60])
    settings = ReadSettings.parse(given)
    parse_identifier(settings.table)
    if settings.has_limits and not ADMITS:
        raise SettingsError.of("READ_LIMITS_UNSUPPORTED")
    return settings


def open_catalog(settings: ReadSettings) -> Catalog:
    """The catalog of the table."""
    found = CatalogConfig(settings.catalog, settings.catalog_properties).find()
    check_lasts(found)
    return found.open(create=False)


class BatchesReader(datasource.DataSourceStreamReader):
    """The reader in the process that plans, for Spark 4.1.

    Attributes:
        known: The greatest position that this process has seen; None at the beginning of a run on an old checkpoint.
        begins: Where this run begins, if its checkpoint has no completed micro-batch.
    """

    def __init__(self, settings: ReadSettings, loaded: Loaded) -> None:
        self.settings = settings
        self.loaded = loaded
        self.known: Position | None = None
        self.begins: Position | None = None
        self.progress = Progress(settings.table, loaded.sink.sink)
        self._catalog: Catalog | None = None
        self._holds_until = float("-inf")

    def __reduce__(self) -> tuple[type[RowsReader], tuple[()]]:
        """Executors get a reader without options and catalog."""
        return RowsReader, ()

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins; Spark 4.1 has asked for the newest offset before."""
        with presentable():
            begin = _beginning(self.settings)
            if begin is not Begin.LATEST or self.known is None:
                self.known = beginning(self.table(), self.settings.table, self.loaded.sink, begin)
            self.begins = self.known
            return self.known.to_offset()

    def latestOffset(self) -> dict[str, Any]:
        """The end of what can be read now."""
        with presentable():
            if self.known is None:
                self.known = newest_position(self.table(), self.settings.table, self.loaded.sink)
            else:
                self.known = self.after(self.known, limited=False)
            return self.known.to_offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RowsPartition]:
        """The tasks of a micro-batch: the same rows whenever Spark plans it."""
        with presentable():
            return self._planned(parse_offset(start), parse_offset(end))

    def read(self, partition: Any) -> Any:
        """Never called: executors get what `__reduce__` gives."""
        raise AssertionError("a task must have a RowsReader")

    def after(self, position: Position, *, limited: bool, newest: Position | None = None) -> Position:
        """The end of the next micro-batch; the position itself if there is nothing new."""
        past, found = unread_batches(self.table(), self.settings.table, self.loaded.sink, position)
        batches: Sequence[PastCommit] = found.batches
        if newest is not None:
            batches = [batch for batch in batches if is_read_at(batch, newest)]
        if limited:
            batches = up_to(batches, self.settings.max_batches_per_trigger, self.settings.max_rows_per_trigger)
        self.progress.found(past, found)
        return behind(past, position, batches)

    def table(self) -> Table:
        """The table as it is now."""
        if self._catalog is None:
            self._catalog = open_catalog(self.settings)
        return load_table(self._catalog, self.settings.table)

    def _planned(self, start: Position, end: Position) -> list[RowsPartition]:
        if start.is_at(end):
            return []
        table = self.table()
        is_first = self.begins is not None and start.is_at(self.begins)
        past, batches = batches_between(table, self.settings.table, self.loaded.sink, start, end, is_first=is_first)
        self._hold(table, past, start)
        found = files_of(table, past, batches)
        self._check_columns(table, past, found)
        files = [
            RowsFile(file.path, file.record_count, file.file_size_bytes, one.batch.title)
            for one in found
            for file in one.data
        ]
        self.progress.planned(found)
        part = RowsPart((), self.loaded.schema_json, shareable_properties(table.io.properties), table.catalog.name)
        return [RowsPartition(replace(part, files=some), __version__) for some in divided(files)]

    def _hold(self, table: Table, past: Past, start: Position) -> None:
        """Keep from expiry what this query has not read, once in a while: each time is a commit to the table."""
        now = time.monotonic()
        if not self.settings.reader_id or now < self._holds_until:
            return
        self._holds_until = now + SECONDS_BETWEEN_HOLDS
        unread = commits_after(past, self.loaded.sink, start)
        why = set_hold(table, self.settings.reader_id, unread[-1].snapshot_id, len(unread)) if unread else ""
        if why:
            self.progress.emit(events.HoldNotMoved(self.settings.table, self.settings.reader_id, why))

    def _check_columns(self, table: Table, past: Past, found: Sequence[BatchFiles]) -> None:
        """Refuse batches with columns that came after the query's start."""
        reader, current = parse_schema(self.loaded.schema_json), parse_schema(table.schema().model_dump_json())
        checked: set[str] = {self.loaded.schema_json}
        for one in found:
            if one.schema_json in checked:
                continue
            checked.add(one.schema_json)
            unknown = unknown_columns(reader, parse_schema(one.schema_json), current)
            if unknown:
                raise schema_changed(past.table, one.batch, unknown)


def _beginning(settings: ReadSettings) -> Beginning:
    if settings.starting_timestamp is not None:
        return AtTime(settings.starting_timestamp)
    if isinstance(settings.starting_batch, int):
        return AtBatch(settings.starting_batch)
    return Begin.LATEST if settings.starting_batch == LATEST else Begin.EARLIEST
