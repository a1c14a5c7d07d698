"""The Iceberg sink: a two-phase sink whose target is one table. It handles receipts and never reads a row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink.keys.work import RunInExecutors
from lakesink.rows.columns import missing_columns, unknown_columns
from lakesink.rows.expectations import Expected, without_marks
from lakesink.rows.plan import DEBEZIUM, DELETED
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import check_conditions, expected_of, plan_batch
from lakesink.sinks.iceberg.checked_receipts import count_votes, decoded
from lakesink.sinks.iceberg.document_evolution import follow, left_rows, not_written_again, widened_floats
from lakesink.sinks.iceberg.keyed_changes import ChangesByKey, prepared_changes
from lakesink.sinks.iceberg.logs import why_unusable
from lakesink.sinks.iceberg.side.side_rollback import with_side_tables
from lakesink.sinks.iceberg.side.side_sink import SideTableSink
from lakesink.sinks.iceberg.side.side_tables import SideTables, side_participant
from lakesink.sinks.iceberg.sink_table import RunMemory, SinkTable
from lakesink.sinks.iceberg.table_layout import unkept_field
from lakesink.sinks.iceberg.transaction import BatchWarnings, IcebergTransaction
from lakesink.sinks.unused_accept import UnusedAcceptWarning
from lakesink_catalog.commit.decision import check_has_head, check_key
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.commit.recovered import parse_prepared
from lakesink_catalog.commit.table_change import Locate
from lakesink_catalog.read.view import newest_summary
from lakesink_protocol import events
from lakesink_protocol.errors import Reason, WriteError
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.quality import LETTERS_SINCE, REPLAY, Quality, letters_since
from lakesink_protocol.receipt_json import ReceiptInvalid
from lakesink_protocol.refusals.message import refusal
from lakesink_protocol.refusals.texts import Words
from lakesink_protocol.situation import Situation
from lakesink_protocol.two_phase import Durability, Payload, TwoPhaseCommitSink, WriteAgain
from lakesink_protocol.verdict import Commit, Refuse, Skip
from lakesink_protocol.votes import receipt_rejected

BeforeCommit = Callable[[], Callable[[Table], None] | None]
"""See `IcebergSink`."""


@dataclass(slots=True)
class IcebergSink(TwoPhaseCommitSink[IcebergTransaction, PreparedBatch]):
    """Writes one stream, or one transaction application, into one branch of one table.

    Attributes:
        case_sensitive: True if the session distinguishes column names by their case.
        open_catalog: Called by the first batch.
        words: Messages of refusals for the place where the stream runs, instead of the general ones.
        schema: Of the rows as they arrive; without the marks of expectations after the sink was made.
        before_commit: Called when the batch is prepared; may return a check of each state of the table on which the
            batch is to be committed. If one of both raises an error, nothing is committed.
        can_write_again: False if Spark's job over the rows ended before the votes are counted.
        run_in_executors: For locating and maintenance; None where there is no session, as in ``format("lakesink")``.
        expected: The expectations of the rows.
        changes: Locates the rows that batches with changes by key replace or delete.
        side_tables: The participants that get rows beside the table.
        target: The table, as the run sees it.
    """

    table: str
    key: SinkKey
    open_catalog: Callable[[], Catalog]
    settings: Settings
    schema: pa.Schema
    case_sensitive: bool = False
    effects: Effects = field(default_factory=Effects)
    memory: RunMemory = field(default_factory=RunMemory)
    words: Sequence[Words] = ()
    before_commit: BeforeCommit | None = None
    can_write_again: bool = True
    run_in_executors: RunInExecutors | None = None
    expected: tuple[Expected, ...] = field(init=False)
    side_tables: SideTables = field(init=False)
    changes: ChangesByKey = field(init=False)
    target: SinkTable = field(init=False)
    _accept_warning: UnusedAcceptWarning = field(init=False)
    _committed_id: int | None = field(default=None, init=False)

    durability = Durability.PREPARED_SURVIVES

    def __post_init__(self) -> None:
        self.expected, self.schema = expected_of(self.schema, self.settings), without_marks(self.schema)
        given = self.table, self.key, self.open_catalog, self.settings, self.effects
        self.target = SinkTable(*given, self.memory, self.words)
        self._accept_warning = UnusedAcceptWarning(self.settings.accept, "table", self.table, self.key.name)
        make_side = partial(side_participant, self.target, IcebergSink, self._accept_warning)
        self.side_tables = SideTables.of(self.target, self.expected, make_side)
        self._accept_warning.is_shared = bool(self.side_tables.used)
        self.changes = ChangesByKey(
            self.settings, self.run_in_executors, self.effects.at_once, self.key.name.startswith(REPLAY)
        )

    @property
    def name(self) -> str:  # type: ignore[override] # computed from the table, read-only
        """The participant's name in records and outcomes: table and branch."""
        return self.target.name

    @property
    def open_named(self) -> Callable[[str], SideTableSink]:  # type: ignore[override] # read-only
        """See `TwoPhaseCommitSink`."""
        return self.side_tables.opened

    def begin(self, batch: Batch) -> IcebergTransaction | AlreadyCommitted:
        """Load the table, or create it for a first batch, and decide on the batch."""
        self.memory.begins(self.effects.monotonic_ms())
        table = self.target.open(batch, self.schema)
        fence = self.target.fence()
        decision = fence.decide_on(table, batch)
        verdict, entry, emit = decision.verdict, decision.situation.entry, self.effects.emit
        emit(events.Decided(batch.batch_id, decision.situation, verdict, self.settings.ledger_tag, at_begin=True))
        self._accept_warning.after_decision(verdict, batch.batch_id, emit)
        if isinstance(verdict, Refuse):
            refused = refusal(verdict.reason, decision.situation, self.words)
            raise with_side_tables(refused, table, self.side_tables.all)
        if verdict.unverifiable:
            emit(events.EntryUnverifiable(entry.batch_id if entry else -1, self.table, self.key.name))
        if isinstance(verdict, Skip):
            fence.tell(decision, table.metadata, verdict.snapshot_id)
            return AlreadyCommitted(verdict.snapshot_id)
        check_has_head(table, self.key.branch)
        write = plan_batch(
            table,
            batch,
            self.key,
            self.settings,
            self.schema,
            case_sensitive=self.case_sensitive,
            adds_rows=verdict.adds_rows,
        ).without_keys(self.memory.refused_keys)
        if verdict.adds_rows:
            check_conditions(self.settings, write.plan)
        if write.plan.changes is not None:
            check_key(table, entry, write.plan.changes.keys)
            self.changes.check_sequence(batch)
        if entry is not None:
            self.target.records.follow(entry.batch_id, entry.fingerprint)
        try:
            sides = self.side_tables.plans(decision, write.plan) if verdict.adds_rows else ()
        except WriteError:
            again = fence.decide_on(self.target.load(), batch)
            if isinstance(again.verdict, Skip):  # a rival has committed the batch meanwhile, and later ones
                return AlreadyCommitted(again.verdict.snapshot_id)
            if isinstance(again.verdict, Refuse):  # or another query has
                raise refusal(again.verdict.reason, again.situation, self.words) from None
            raise
        log = self.target.log(write.table, changes_by_key=write.plan.changes is not None)
        return IcebergTransaction(batch, decision, fence, write, log, self.expected, sides)

    def check_inputs(self, batch: Batch, transaction: IcebergTransaction) -> None:
        """See `TwoPhaseCommitSink.check_inputs`."""
        verdict = transaction.decision.verdict
        assert isinstance(verdict, Commit)
        if batch.missing_inputs and not verdict.without_inputs:
            raise refusal(Reason.INPUT_MISSING, transaction.decision.situation, overruled=verdict.accepted)

    def recover(self, transaction: IcebergTransaction, payload: Payload) -> PreparedBatch | None:
        """Use an earlier run's prepared batch if table, ledger and schema are unchanged and its files still exist.

        Raises BatchRefused if it was prepared for another table of this name, and this one has no entry of the stream.
        """
        prepared = parse_prepared(payload, self.effects.emit)
        if prepared is None or prepared.branch != self.key.branch:
            return None
        seen = transaction.decision.situation
        replaced = prepared.table_uuid != seen.view.table_uuid
        if replaced and seen.entry is None:
            prepared_for = Situation(seen.view, seen.key, seen.batch, prepared.table_uuid)
            raise refusal(Reason.TABLE_REPLACED, prepared_for, self.words)
        # An entry in the present table's ledger means that the stream continued there: the record is obsolete.
        decision, stem = transaction.decision, transaction.write.plan.file_stem
        trouble = (
            "it was prepared for an earlier table" if replaced else why_unusable(decision, prepared, stem, self.effects)
        )
        if trouble:
            self.effects.emit(events.PreparedUnusable(transaction.batch.batch_id, trouble))
            return None
        self.effects.emit(events.BatchRecovered(transaction.batch.batch_id, prepared.snapshot_id))
        return prepared

    def write_rest(self, transaction: IcebergTransaction, receipts: Sequence[bytes]) -> bytes | WriteAgain | None:
        """Write the documents that tasks left, under the schema that follows them.

        All are written again if a task has written a number as a FLOAT whose column becomes a DOUBLE: it has lost
        digits. And if they are changes by key, for the order of a key's changes may be that of one task's rows.
        """
        write = transaction.write
        if write.plan.news is None:  # `count_votes` refuses rows that were left without being asked for
            return None
        found = [receipt for receipt in map(decoded, receipts) if receipt.left is not None and not receipt.refused]
        if not found:
            return None
        followed, following = follow(found, write, transaction.decision.table, self.settings)
        if self.settings.rescue_column:  # a document with such a key is written in any case
            self.memory.refused_keys.update(followed.refused_for_good(self.settings))
        check_conditions(self.settings, following.plan)
        plan = replace(following.plan, news=replace(write.plan.news, is_last=True))
        doubles = widened_floats(followed, write.plan, map(decoded, receipts))
        if doubles is not None and not self.can_write_again:
            raise not_written_again(doubles, write.table.schema(), write.table.name(), write.plan.batch_id)
        log = self.side_tables.changelog
        of_job = None if log is None else log.write
        transaction.sides = self.side_tables.plans(transaction.decision, plan)
        if doubles is not None or (plan.changes is not None and self.can_write_again):
            transaction.write = replace(following, plan=plan)
            return WriteAgain()
        transaction.followed = following
        if log is not None:
            log.of_job = of_job
        return transaction.writer_of(plan).write(len(receipts), left_rows(found, write))

    def pre_commit(self, transaction: IcebergTransaction, receipts: Sequence[bytes]) -> PreparedBatch:
        """Check every receipt and write the batch's manifests."""
        batch_id = transaction.batch.batch_id
        write, followed = transaction.write, transaction.followed
        plan, changes = write.plan, write.plan.changes
        counted = count_votes(
            receipts,
            write.table,
            plan.file_stem,
            batch_id,
            self.expected,
            rest=None if followed is None else followed.table,
            changes_by_key=changes is not None,
        )
        self.side_tables.check(counted, batch_id, logs=transaction.logs)
        warnings = self._warnings
        warnings.of_order(batch_id, unkept_field(write.table))
        warnings.of_rows(batch_id, counted.quality, self.expected, self.side_tables.letters.table)
        if transaction.writer is not None:
            last = (followed or write).plan
            missing = [name for name in missing_columns(self.schema, last) if changes is None or name != DELETED]
            warnings.of_columns(batch_id, missing, unknown_columns(self.schema, last))
        logged = self.side_tables.changelog if transaction.logs else None
        changelog = "" if logged is None else logged.table
        try:
            prepared = transaction.fence.prepare(
                transaction.decision,
                counted.files,
                schema=counted.schema,
                quality=self._with_table(counted.quality, transaction),
                schema_change=(followed or write).schema_change,
                changes=None if changes is None else prepared_changes(changes, counted, changelog),
            )
        except ReceiptInvalid as error:
            raise receipt_rejected(str(error)) from None
        self.effects.emit(events.BatchPrepared(batch_id, prepared.snapshot_id))
        of_tasks = len(counted.keys_files) > 1  # keys that nothing orders are found where all tasks are compared
        if counted.quality.puts_aside or transaction.logs or of_tasks or self.changes.are_replayed:
            self._check_again(transaction, prepared)
        return prepared

    def commit(self, transaction: IcebergTransaction, prepared: PreparedBatch) -> Outcome | None:
        """Commit one atomic snapshot through the fenced loop."""
        check = None if self.before_commit is None else self.before_commit()
        fence = transaction.fence if check is None else replace(transaction.fence, check=check)
        try:
            locate = transaction.locate or self._locate(transaction, prepared)
            outcome = fence.commit(transaction.batch, prepared, locate)
        except BaseException as error:  # the event must report any end of the commit; it is raised again
            self.effects.emit(events.CommitEnded(transaction.batch.batch_id, error))
            raise
        self.effects.emit(events.CommitEnded(transaction.batch.batch_id, outcome))
        if isinstance(outcome, Committed):
            if self.settings.decode in DEBEZIUM:
                self._warnings.of_changes(transaction.batch.batch_id, outcome.changes)
            self._committed_id = transaction.batch.batch_id
        return outcome

    def maintain(self, *, at_end: bool = False) -> None:
        """See `TwoPhaseCommitSink.maintain`."""
        if self.settings.maintains and (at_end or self._committed_id is not None):
            from lakesink.sinks.iceberg.stream_upkeep import StreamUpkeep  # noqa: PLC0415 - few appends need it

            given = self.target, self.side_tables, self.changes.memory, self._committed_id, self.run_in_executors
            StreamUpkeep(*given).run(at_end=at_end)
        self._committed_id, self.memory.ended_ms = None, self.effects.monotonic_ms()

    def abort(self, transaction: IcebergTransaction) -> None:
        """Only log: written files stay unreferenced, and nothing of a batch that may still land is deleted."""
        self.effects.emit(events.BatchAborted(transaction.batch.batch_id, "table", self.table))

    @property
    def _warnings(self) -> BatchWarnings:
        return BatchWarnings(self.table, self.key.name, self.effects.emit, self.memory.reported)

    def _check_again(self, transaction: IcebergTransaction, prepared: PreparedBatch) -> None:
        """Refuse the batch before a side table, record or replay has what would stay there. Locates changes, too."""
        found = transaction.fence.decide_on(self.target.load(), transaction.batch)
        if isinstance(found.verdict, Refuse):
            raise refusal(found.verdict.reason, found.situation, self.words)
        locate = self._locate(transaction, prepared)
        if locate is not None and isinstance(found.verdict, Commit):
            head = found.table.snapshot_by_name(self.key.branch)
            locate(found.table, None if head is None else head.snapshot_id)
            transaction.locate = locate

    def _locate(self, transaction: IcebergTransaction, prepared: PreparedBatch) -> Locate | None:
        """What locates a prepared batch on a head; None if the batch only appends."""
        if prepared.changes is None:
            return None
        return self.changes.locate(prepared, prepared.changes, transaction.write.plan.file_stem)

    def _with_table(self, quality: Quality, transaction: IcebergTransaction) -> Quality:
        """The counts, with the table of the dead letters of this batch and of those before it."""
        letters, batch = self.side_tables.letters, transaction.batch
        before = newest_summary(transaction.decision.situation, batch.query_id, batch.batch_id)
        uuid = "" if all(side.logs for side in transaction.sides) else letters.uuid
        since = letters_since(str(before.get(LETTERS_SINCE, "")), batch.batch_id, uuid)
        return quality.with_letters(letters.table, since)
