"""A side table of one sink, such as that of its dead letters: a participant of its batches that only votes name.

It commits before the sink's own table, and a batch may have nothing for it. Its ledger therefore is that of an
application, whose versions may leave gaps: the version is the batch id, and the fingerprint says which rows it has. A
batch that is written again must have the same rows, or it is refused: else the two tables would contradict each other.

A catalog may answer with an older state of the table, even with one that was dropped. The commit asserts the state on
which it was decided. Where nothing is to be committed, `is_current` asks the catalog instead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink.rows.plan import WritePlan
from lakesink.rows.side_rows import digest_sum, side_end
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import BatchWrite
from lakesink.sinks.iceberg.checked_receipts import decoded
from lakesink.sinks.iceberg.side.side_batches import all_batches
from lakesink.sinks.iceberg.side.side_table import SideTable, WaysOut, has_gaps, side_plan
from lakesink_catalog.commit.decision import check_has_head
from lakesink_catalog.commit.request import is_current
from lakesink_catalog.read.landed import newest_batch
from lakesink_catalog.read.view import view_table
from lakesink_catalog.tables.tables import create_table, find_table, load_table
from lakesink_protocol.errors import CatalogError, CommitUnresolved, Reason, WriteError
from lakesink_protocol.identity import MAIN_BRANCH, NO_BATCH, Batch, SinkKey, digest
from lakesink_protocol.ledger import LedgerEntry, Mark, mark_of
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.receipt_json import ReceiptInvalid, plain_text, whole_count
from lakesink_protocol.refusals.message import refusal
from lakesink_protocol.situation import Situation
from lakesink_protocol.two_phase import Durability, NoPreparedLog, Payload, PreparedLog, TwoPhaseCommitSink

Participant = TwoPhaseCommitSink[Any, Any]

MOST_LOOKS = 10
"""Each look after the first one follows another driver's commit, or an older answer of the catalog."""


@dataclass(frozen=True, slots=True)
class SideTransaction:
    """A batch whose rows are known with the votes: until then, nothing is open."""

    batch: Batch
    writer: None = None
    prepared_log: PreparedLog = field(default_factory=NoPreparedLog)


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """The rows of a batch, ready to commit.

    Attributes:
        fingerprint: Digest of the rows.
        transaction: Of the table; None if an earlier run has committed these rows.
        prepared: Of the table; None likewise.
    """

    rows: int
    fingerprint: str
    transaction: Any = None
    prepared: Any = None

    @property
    def payload(self) -> dict[str, Any]:
        """JSON form for the prepared record."""
        prepared = None if self.prepared is None else self.prepared.payload
        return {"rows": self.rows, "fingerprint": self.fingerprint, "prepared": prepared}


@dataclass(slots=True)
class SideTableSink(TwoPhaseCommitSink[SideTransaction, PreparedRows]):
    """Writes the rows of one sink that go to a side table.

    Attributes:
        owner: The sink's key.
        own: The sink's own table, as the batch has found it; None if the sink writes to no table.
        columns: Of the rows. They may change from batch to batch: see `follow`.
        open_table: Makes the participant that writes a table, from a key and the columns of the rows.
        uuid: Of the table, as it was found last; empty before that.
        voted: Batch and number of the newest rows that the tasks' receipts had.
        write: How tasks write the rows of the newest batch that was planned.
        of_job: The same, of the tasks whose left rows are written under other columns; None if there are none.
        _first: The first batch that this sink had: an earlier run may have had it too.
        _with_rows: The newest batch of which this sink has seen rows.
        _planned: The newest batch for which tasks got a plan, and the UUID of the table in the plan.
    """

    kind: SideTable
    table: str
    owner: SinkKey
    own: Callable[[], Table | None]
    columns: pa.Schema
    settings: Settings
    connected: Callable[[], Catalog]
    open_table: Callable[[SinkKey, pa.Schema], Participant]
    uuid: str = field(default="", init=False)
    voted: tuple[int, int] = field(default=(-1, 0), init=False)
    write: BatchWrite | None = field(default=None, init=False)
    of_job: BatchWrite | None = field(default=None, init=False)
    _tables: dict[SinkKey, Participant] = field(default_factory=dict, init=False)
    _first: int | None = field(default=None, init=False)
    _with_rows: int | None = field(default=None, init=False)
    _planned: tuple[int, str] = field(default=(-1, ""), init=False)

    durability = Durability.PREPARED_SURVIVES

    @property
    def name(self) -> str:  # type: ignore[override] # computed from the table, read-only
        """The participant's name in votes, records and outcomes."""
        return f"{self.table}@{MAIN_BRANCH}"

    @property
    def has_batches(self) -> bool:
        """True if the table exists and shows batches of any sink; False also if this cannot be told."""
        try:
            return any(True for _ in all_batches(load_table(self.connected(), self.table)))
        except CatalogError:
            return False

    def follow(self, columns: pa.Schema) -> None:
        """Write rows with these columns from now on."""
        if not columns.equals(self.columns):
            self.columns = columns
            self._tables.clear()

    def plan_for(self, batch: Batch, own: Situation | None = None) -> WritePlan:
        """The plan for the tasks of a batch; the own table decides on it, if there is one. Creates a missing table.

        Raises:
            WriteError: The table has other columns, rows of a later batch, or rows of one that the own table never got.
        """
        entry = None if own is None else own.entry
        table, key = self._load_or_create(), self.key(batch)
        self.voted = (batch.batch_id, 0)
        newest = newest_batch(table, key)
        if newest is not None and newest.batch_id > batch.batch_id:
            ways = self._ways_out
            if own is None or not ways.has_landed(own):
                raise ways.rewound(table, batch, newest.batch_id)
        is_behind = newest is not None and entry is not None and entry.batch_id < newest.batch_id < batch.batch_id
        if (own is not None and not _follows(own)) or (is_behind and has_gaps(self.owner)):
            self._check_none_left(table, batch)
        if newest is not None and newest.batch_id == batch.batch_id:
            self._with_rows = batch.batch_id
        self._planned = batch.batch_id, self.uuid
        self.write, self.of_job = side_plan(self.kind, table, batch, key, self.settings, self.columns), None
        return self.write.plan

    def key(self, batch: Batch) -> SinkKey:
        """The application that writes the rows of the query of a batch."""
        own = self.own()
        return self.kind.key_of(self.owner, batch.query_id, "" if own is None else str(own.metadata.table_uuid))

    def knows(self, batch: Batch) -> bool:
        """True if the table has, or had before a rollback, rows of the query of this batch."""
        for _ in range(MOST_LOOKS):
            table = self._load_or_create()
            if view_table(table, self.key(batch)).entry is not None:
                return True
            if is_current(table, MAIN_BRANCH):
                return False
        raise self._older_state(batch)

    def begin(self, batch: Batch) -> SideTransaction:
        """Opens nothing yet."""
        return SideTransaction(batch)

    def pre_commit(self, transaction: SideTransaction, receipts: Sequence[bytes]) -> PreparedRows | None:
        """Prepare the rows; None if there are none."""
        batch, rows, digests = transaction.batch, 0, []
        for receipt in map(decoded, receipts):
            if receipt.refused:  # the receipts of the sink's own table say why
                return None
            rows += receipt.rows
            digests.append(receipt.payload_digest)
        self.voted = (batch.batch_id, rows)
        found = self._begun(batch, rows, digest({"rows": rows, "digest": f"{digest_sum(*digests):x}"}))
        if not rows or found.transaction is None:
            return found if rows else None
        if self._planned[0] == batch.batch_id and self._planned[1] != self.uuid:
            key = self.key(batch)
            now = Situation(view_table(self._load_or_create(), key), key, batch, self._planned[1])
            raise refusal(Reason.TABLE_REPLACED, now, self.kind.words)
        skipped = found.transaction.writer is None  # by an operator
        if self.of_job is not None:
            found.transaction.write, found.transaction.followed = self.of_job, found.transaction.write
        return replace(found, prepared=self._of(batch).pre_commit(found.transaction, [] if skipped else receipts))

    def recover(self, transaction: SideTransaction, payload: Payload) -> PreparedRows | None:
        """The rows that an earlier run prepared or committed; None to write the batch again."""
        try:
            rows, fingerprint = whole_count(payload["rows"]), plain_text(payload["fingerprint"])
        except (ReceiptInvalid, KeyError):
            return None
        found = self._begun(transaction.batch, rows, fingerprint)
        if found.transaction is None:
            return found
        prepared, table = payload.get("prepared"), self._load_or_create()
        if not isinstance(prepared, Mapping) or prepared.get("table_uuid") != str(table.metadata.table_uuid):
            return None  # the table was dropped since, and what was prepared is for the old one
        usable = self._of(transaction.batch).recover(found.transaction, prepared)
        return None if usable is None else replace(found, prepared=usable)

    def commit(self, transaction: SideTransaction, prepared: PreparedRows) -> Outcome | None:
        """Commit the rows, or find them committed."""
        if prepared.transaction is None:
            return AlreadyCommitted(None)
        outcome = self._of(transaction.batch).commit(prepared.transaction, prepared.prepared)
        if outcome is None or (isinstance(outcome, Committed) and not outcome.recovered and outcome.attempts == 1):
            return outcome
        # Another driver has committed rows of the batch, perhaps others, or only a load has shown them.
        again = self._begun(transaction.batch, prepared.rows, prepared.fingerprint)
        return outcome if again.transaction is None else None

    def abort(self, transaction: SideTransaction) -> None:
        """Nothing is open: files stay unreferenced."""

    def _begun(self, batch: Batch, rows: int, fingerprint: str) -> PreparedRows:
        """The batch's rows with their open transaction; without it if the table has them, or if there are none."""
        found = PreparedRows(rows, fingerprint)
        self._first = batch.batch_id if self._first is None else self._first
        for _ in range(MOST_LOOKS):
            table = self._load_or_create()
            there = _batch_or_later(table, self.key(batch), batch.batch_id)
            has_batch = there is not None and there.batch_id == batch.batch_id
            if has_batch or rows:
                self._with_rows = batch.batch_id
            unasserted = has_batch or (not rows and batch.batch_id in (self._first, self._with_rows))
            if unasserted and not is_current(table, MAIN_BRANCH):
                continue
            if there is not None and has_batch:
                if there.fingerprint != fingerprint:
                    ways = self._ways_out.of(table, batch, self.kind.as_it_was)
                    raise WriteError.of(
                        f"{self.kind.code}.other_rows",
                        batch_id=batch.batch_id,
                        rows=rows,
                        table=self.table,
                        ways_out=ways,
                    )
                return found
            if not rows:
                return found
            if there is not None:
                raise self._ways_out.rewound(table, batch, there.batch_id)
            own = self.own()
            end = side_end(batch.query_id, 0 if own is None else getattr(own.metadata, "last_sequence_number", 0))
            begun = self._of(batch).begin(Batch(batch.batch_id, "", fingerprint, start=None, end=end))
            if not isinstance(begun, AlreadyCommitted):  # by a driver that came between the two looks
                return replace(found, transaction=begun)
        raise self._older_state(batch)

    def _check_none_left(self, table: Table, batch: Batch) -> None:
        """Refuse by the present state of the own table alone: an older one lacks batches that it has."""
        for _ in range(MOST_LOOKS):
            ways = self._ways_out
            try:
                return ways.check_none_left(table, batch)
            except WriteError:
                if ways.own is None or is_current(ways.own, self.owner.branch):
                    raise
        raise self._older_state(batch)

    def _older_state(self, batch: Batch) -> CommitUnresolved:
        unknown = f"the {self.kind.keeps} of batch {batch.batch_id} are"
        return CommitUnresolved.of("COMMIT_UNRESOLVED.older_state", table=self.table, unknown=unknown)

    def _of(self, batch: Batch) -> Participant:
        key = self.key(batch)
        if key not in self._tables:
            self._tables[key] = self.open_table(key, self.columns)
        return self._tables[key]

    def _load_or_create(self) -> Table:
        """The table. If it has another UUID than before, forget the writers of the old one, as a restart does."""
        catalog = self.connected()
        table = find_table(catalog, self.table) or create_table(catalog, self.table, self.columns)
        check_has_head(table, MAIN_BRANCH)
        uuid = str(table.metadata.table_uuid)
        if uuid != self.uuid:
            self._tables.clear()
            self.uuid = uuid
        return table

    @property
    def _ways_out(self) -> WaysOut:
        own = self.own()
        own = None if own is None else load_table(self.connected(), ".".join(own.name()))
        return WaysOut(self.kind, self.table, self.connected(), own, self.owner)


def _follows(own: Situation) -> bool:
    """The batch before is of the same query, and had a plan as well: a batch that an operator skips has none."""
    entry = own.entry
    if entry is None or entry.query_id != own.batch.query_id:
        return False
    snapshot = own.view.snapshots.get(entry.snapshot_id)
    mark = None if snapshot is None else mark_of(snapshot.summary)
    return mark is None or mark.adds_rows


def _batch_or_later(table: Table, key: SinkKey, batch_id: int) -> LedgerEntry | Mark | None:
    """A batch that the table has; if it shows only later ones, the newest. Another driver may have gone on to those."""
    newest = newest_batch(table, key)
    if newest is None or newest.batch_id < batch_id:
        return None
    view = view_table(table, key)
    marks = Situation(view, key, NO_BATCH, view.table_uuid).own_marks
    return next((mark for mark, _ in marks if mark.batch_id == batch_id), newest)
