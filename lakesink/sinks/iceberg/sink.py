"""One Iceberg table as a two-phase sink. Passes receipts to the table side and never touches a row."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink.settings.settings import Settings
from lakesink.sinks.accept_in_use import AcceptInUse
from lakesink.sinks.iceberg.planning import write_plan
from lakesink.sinks.iceberg.preflight import check_creation, check_partitions
from lakesink.sinks.iceberg.task import ParquetTaskWriter, check_columns
from lakesink.sinks.iceberg.votes import all_under, count_votes, is_data_file
from lakesink.writer.columns import missing_columns
from lakesink.writer.plan import WritePlan
from lakesink_catalog.commit.clock import ClockWatch
from lakesink_catalog.commit.fence import FencedCommit, Look, Surroundings, still_usable
from lakesink_catalog.commit.prepared import PreparedBatch, PreparedFiles, parse_prepared
from lakesink_catalog.commit.recovery import holds_what_it_says
from lakesink_catalog.commit.request import CommitOptions
from lakesink_catalog.connect.errors import stored
from lakesink_catalog.manifests.merging import Layouts
from lakesink_catalog.tables.locations import data_location, metadata_location
from lakesink_catalog.tables.tables import TABLE_MISSING, create_table, load_table
from lakesink_catalog.trace import Trace
from lakesink_protocol import events
from lakesink_protocol.decoded import LONGEST_NAME, Decoded
from lakesink_protocol.errors import CatalogError, Reason
from lakesink_protocol.events import Listener
from lakesink_protocol.identity import Batch, SinkKey, SinkKind
from lakesink_protocol.outcome import AlreadyCommitted, Outcome
from lakesink_protocol.receipt import ReceiptInvalid
from lakesink_protocol.redact import shown
from lakesink_protocol.refusal import refusal
from lakesink_protocol.refusal_words import Words
from lakesink_protocol.situation import Situation
from lakesink_protocol.two_phase import Durability, NoPreparedLog, Payload, PreparedLog, TwoPhaseCommitSink
from lakesink_protocol.verdict import Commit, Refuse, Skip
from lakesink_protocol.votes import receipt_rejected


@dataclass(frozen=True, slots=True)
class IcebergTransaction:
    """One batch that may be written: the decision that allowed it, and the plan for the executors."""

    batch: Batch
    look: Look
    fence: FencedCommit
    plan: WritePlan
    prepared_log: PreparedLog

    @property
    def writer(self) -> ParquetTaskWriter | None:
        """The executors' part; None if an operator had the batch skipped."""
        assert isinstance(self.look.verdict, Commit)
        return ParquetTaskWriter(self.plan) if self.look.verdict.adds_rows else None


@dataclass(frozen=True, slots=True)
class OpenedTable:
    """What a run keeps of its first look: `uuid` is the table that every later batch must find."""

    uuid: str
    records: PreparedFiles


@dataclass(slots=True)
class IcebergSink(TwoPhaseCommitSink[IcebergTransaction, PreparedBatch]):
    """Writes one stream, or one transaction application, into one branch of one table.

    Attributes:
        case_sensitive: True if the session distinguishes column names by their case.
        open_catalog: Called by the first batch.
        told: Names that warnings have reported, to report each only once.
        clock: Watches the driver's clock; given by callers that create a sink for each batch.
        words: Messages of refusals for the place where the stream runs, instead of the general ones.
    """

    table: str
    key: SinkKey
    open_catalog: Callable[[], Catalog]
    settings: Settings
    schema: pa.Schema
    case_sensitive: bool = False
    surroundings: Surroundings = field(default_factory=Surroundings)
    told: set[str] = field(default_factory=set)
    clock: ClockWatch | None = None
    words: Sequence[Words] = ()
    _catalog: Catalog | None = None
    _opened: OpenedTable | None = None
    _accept: AcceptInUse = field(init=False)
    _layouts: Layouts = field(default_factory=dict)

    durability = Durability.PREPARED_SURVIVES

    def __post_init__(self) -> None:
        self._accept = AcceptInUse(self.settings.accept, "table", self.table, self.key.name)
        traced = self.surroundings.emit.also(Trace(secrets.token_hex(8)))
        self.surroundings = replace(self.surroundings, emit=traced)

    @property
    def name(self) -> str:  # type: ignore[override] # computed from the table, read-only
        """The participant's name in records and outcomes: table and branch."""
        return f"{self.table}@{self.key.branch}"

    def begin(self, batch: Batch) -> IcebergTransaction | AlreadyCommitted:
        """Load the table, or create it for a first batch, and decide on the batch."""
        if self._opened is None:
            table = self._load_or_create(batch)
            self._opened = self._open(table)
        else:
            table = self._load()
        fence = self._fence(table, self._opened.uuid)
        look = fence.decide_on(table, batch)
        verdict, entry, emit = look.verdict, look.situation.entry, self.surroundings.emit
        emit(events.Decided(batch.batch_id, look.situation, verdict, self.settings.ledger_tag, at_begin=True))
        self._accept.decided(verdict, batch.batch_id, emit)
        if isinstance(verdict, Refuse):
            raise refusal(verdict.reason, look.situation, self.words)
        if verdict.unproven:
            emit(events.EntryUnverifiable(entry.batch_id if entry else -1, self.table, self.key.name))
        if isinstance(verdict, Skip):
            return AlreadyCommitted(verdict.snapshot_id)
        plan = write_plan(table, batch, self.key, self.settings, case_sensitive=self.case_sensitive)
        check_columns(self.schema, plan)
        records = self._opened.records
        if entry is not None:
            records.follow(entry.batch_id, entry.fingerprint)
        return IcebergTransaction(batch, look, fence, plan, self._log(records))

    def check_inputs(self, batch: Batch, transaction: IcebergTransaction) -> None:
        """See `TwoPhaseCommitSink.check_inputs`."""
        verdict = transaction.look.verdict
        assert isinstance(verdict, Commit)
        if batch.missing_inputs and not verdict.without_inputs:
            raise refusal(Reason.INPUT_MISSING, transaction.look.situation, overruled=verdict.accepted)

    def recover(self, transaction: IcebergTransaction, payload: Payload) -> PreparedBatch | None:
        """Use an earlier run's prepared batch if table, ledger and schema are unchanged and its files still exist.

        Raises BatchRefused if it was prepared for another table of this name, and this one has no entry of the stream.
        """
        prepared = parse_prepared(payload, self.surroundings.emit)
        if prepared is None or prepared.branch != self.key.branch:
            return None
        seen = transaction.look.situation
        replaced = prepared.table_uuid != seen.view.table_uuid
        if replaced and seen.entry is None:
            prepared_for = Situation(seen.view, seen.key, seen.batch, prepared.table_uuid)
            raise refusal(Reason.TABLE_REPLACED, prepared_for)
        prepared = prepared.pinned(transaction.look.table.metadata)
        # With an entry in the present table's ledger, the stream has already continued there: the record is a leftover.
        trouble = "it was made for an earlier table" if replaced else _trouble(transaction, prepared)
        if trouble:
            self.surroundings.emit(events.PreparedUnusable(transaction.batch.batch_id, trouble))
            return None
        self.surroundings.emit(events.BatchRecovered(transaction.batch.batch_id, prepared.snapshot_id))
        return prepared

    def pre_commit(self, transaction: IcebergTransaction, receipts: Sequence[bytes]) -> PreparedBatch:
        """Check every receipt and write the batch's manifests."""
        batch_id = transaction.batch.batch_id
        counted = count_votes(receipts, transaction.look.table, transaction.plan.file_stem, batch_id)
        if counted.decoded.malformed_rows:
            malformed = counted.decoded.malformed_rows, counted.first_malformed
            self.surroundings.emit(events.RowsMalformed(batch_id, self.table, *malformed))
        self._warn_of_missing(transaction)
        self._warn_of_unknown(batch_id, counted.decoded)
        try:
            prepared = transaction.fence.prepare(
                transaction.look, counted.files, schema=counted.schema, decoded=counted.decoded
            )
        except ReceiptInvalid as error:
            raise receipt_rejected(str(error)) from None
        self.surroundings.emit(events.BatchPrepared(batch_id, prepared.snapshot_id))
        return prepared

    def commit(self, transaction: IcebergTransaction, prepared: PreparedBatch) -> Outcome | None:
        """Commit one atomic snapshot through the fenced loop."""
        try:
            outcome = transaction.fence.commit(transaction.batch, prepared)
        except BaseException as error:
            self.surroundings.emit(events.CommitEnded(transaction.batch.batch_id, error))
            raise
        self.surroundings.emit(events.CommitEnded(transaction.batch.batch_id, outcome))
        return outcome

    def abort(self, transaction: IcebergTransaction) -> None:
        """Only log: written files stay unreferenced, and the data path deletes nothing."""
        self.surroundings.emit(events.BatchAborted(transaction.batch.batch_id, "table", self.table))

    def _log(self, records: PreparedFiles) -> PreparedLog:
        """An application has none: its version does not identify the rows, so each call writes those that it got."""
        return ReportedLog(records, self.surroundings.emit) if self.key.kind is SinkKind.STREAM else NoPreparedLog()

    def _open(self, table: Table) -> OpenedTable:
        check_partitions(table, self.settings.partition_by, self.surroundings.emit)
        if not self.settings.ledger_tag:
            self.surroundings.emit(events.LedgerTagOff(self.table, self.key.name))
        records = PreparedFiles(
            io=table.io,
            folder=f"{metadata_location(table)}/{self.key.record_folder}",
            key=self.key,
            max_age_ms=_milliseconds(self.settings.prepared_max_age),
            now_ms=self.surroundings.now_ms,
            emit=self.surroundings.emit,
        )
        return OpenedTable(str(table.metadata.table_uuid), records)

    def _load_or_create(self, batch: Batch) -> Table:
        """Only a first batch creates its table: a table that is missing at a later batch was dropped."""
        try:
            return self._load()
        except CatalogError as error:
            first = batch.batch_id == 0 or self.key.kind is SinkKind.TXN
            if error.code != TABLE_MISSING or not self.settings.create_table:
                raise
            if not first:
                raise _dropped(self.table, batch) from None
        check_creation(self.schema, self.settings)
        table = create_table(self._connected(), self.table, self.schema, self.settings.partition_by, {})
        self.surroundings.emit(events.TableCreated(batch.batch_id, self.table))
        return table

    def _load(self) -> Table:
        return load_table(self._connected(), self.table)

    def _connected(self) -> Catalog:
        if self._catalog is None:
            self._catalog = self.open_catalog()
        return self._catalog

    def _fence(self, table: Table, start_uuid: str) -> FencedCommit:
        effective = self.settings.effective(table.properties, self.surroundings.emit)
        options = CommitOptions(
            accept=self.settings.accept,
            ledger_tag=self.settings.ledger_tag,
            ledger_tag_max_age_ms=_milliseconds(self.settings.ledger_tag_max_age),
            tag_every=self.settings.tag_every,
            tag_max_age_ms=_milliseconds(self.settings.tag_max_age),
            snapshot_properties=tuple(sorted(self.settings.snapshot_properties.items())),
            retry=effective.retry,
            merge=effective.merge,
            prepared_max_age_ms=_milliseconds(self.settings.prepared_max_age),
        )
        self.clock = self.clock or ClockWatch(_milliseconds(self.settings.max_clock_ahead))
        of_run = self._layouts, self.clock, self.words
        return FencedCommit(self._load, self.key, start_uuid, options, self.surroundings, *of_run)

    def _warn_of_missing(self, transaction: IcebergTransaction) -> None:
        """Warn once for each column, with its first batch: a column that leaves the query is NULL from then on."""
        columns = [name for name in missing_columns(self.schema, transaction.plan) if f"column {name}" not in self.told]
        if columns:
            self.told.update(f"column {name}" for name in columns)
            names = ", ".join(shown(name, LONGEST_NAME) for name in columns)
            self.surroundings.emit(events.ColumnsMissing(transaction.batch.batch_id, self.table, self.key.name, names))

    def _warn_of_unknown(self, batch_id: int, decoded: Decoded) -> None:
        """Warn once for each name: omitting a key may be intended, and a stream runs for a long time."""
        news = [name for name in decoded.unknown_names if name not in self.told]
        if news:
            self.told.update(news)
            names = Decoded(unknown_names=tuple(news)).names_text
            self.surroundings.emit(events.KeysUnknown(batch_id, self.table, names))


@dataclass(frozen=True, slots=True)
class ReportedLog:
    """The prepared records of a sink, which reports when one is durable."""

    records: PreparedFiles
    emit: Listener

    def find(self, batch: Batch) -> Mapping[str, Payload] | None:
        """See `PreparedFiles.find`."""
        return self.records.find(batch)

    def put(self, batch: Batch, payloads: Mapping[str, Payload]) -> None:
        """See `PreparedFiles.put`."""
        self.records.put(batch, payloads)
        self.emit(events.BatchRecorded(batch.batch_id))

    def landed(self, batch: Batch) -> None:
        """See `PreparedFiles.landed`."""
        self.records.landed(batch)


def _dropped(table: str, batch: Batch) -> CatalogError:
    before = "batch 0" if batch.batch_id == 1 else f"batches 0 to {batch.batch_id - 1}"
    return CatalogError(
        "TABLE_MISSING",
        f"There is no table {table}, and the checkpoint is past its beginning, at batch {batch.batch_id}.",
        data=f"Nothing was created or written. The rows of {before} were in the table that is gone.",
        action="Restore the table, or correct its name or the option catalog. If it was dropped on purpose, start a new"
        " checkpoint: it creates the table and reads the source from its beginning; what the source no longer has is"
        " lost. With this checkpoint a new table would lack every earlier row.",
    )


def _trouble(transaction: IcebergTransaction, prepared: PreparedBatch) -> str | None:
    """Why a prepared batch can no longer be committed; None if it can."""
    look, table = transaction.look, transaction.look.table
    if not prepared.only_appends:
        return "a newer lakesink made it, with deletes or another schema"
    if not still_usable(look, prepared):
        return "the ledger, the schema or the specs moved on"
    manifests = (manifest.path for manifest in prepared.manifests)
    own = (is_data_file(path, data_location(table), transaction.plan.file_stem) for path, _ in prepared.files)
    if not all_under(metadata_location(table), manifests) or not all(own):
        return "a path lies outside the table's locations, or is another batch's"
    io = table.io
    if not prepared.is_there(io, transaction.fence.surroundings.all_pass):
        return "a file is missing or has another size"
    premises = prepared.premises
    assert premises is not None
    if not stored(io.properties, lambda: holds_what_it_says(prepared, premises, io)):
        return "its manifests hold other files than it says"
    return None


def _milliseconds(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1000)
