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
from lakesink.settings.option_types import SchemaEvolution
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.evolution import plan_write
from lakesink.sinks.iceberg.side.begun_replays import replays_back
from lakesink.sinks.iceberg.side.side_batches import (
    KeyOf,
    SideBatch,
    all_batches,
    in_snapshots,
    left_behind,
    side_batches,
    way_back,
)
from lakesink_catalog.commit.current import is_current
from lakesink_catalog.commit.unprotected_first import check_has_head
from lakesink_catalog.read.landed import Landed, newest_batch
from lakesink_catalog.read.view import view_table
from lakesink_catalog.tables.tables import TABLE_MISSING, create_table, load_table
from lakesink_catalog.words import counted
from lakesink_protocol.errors import BatchRefused, CatalogError, CommitUnresolved, Reason, WriteError
from lakesink_protocol.identity import MAIN_BRANCH, NO_BATCH, Batch, SinkKey, SinkKind, digest
from lakesink_protocol.ledger import LedgerEntry, Mark, mark_of
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.receipt import ReceiptInvalid, decode, plain_text, whole_count
from lakesink_protocol.refusals.message import refusal
from lakesink_protocol.refusals.texts import Words
from lakesink_protocol.situation import Situation
from lakesink_protocol.two_phase import Durability, NoPreparedLog, Payload, PreparedLog, TwoPhaseCommitSink
from lakesink_protocol.votes import receipt_rejected

Participant = TwoPhaseCommitSink[Any, Any]

MOST_LOOKS = 10
"""Each look after the first one follows another driver's commit, or an older answer of the catalog."""


@dataclass(frozen=True, slots=True)
class SideTable:
    """A kind of side tables.

    Attributes:
        keeps: What its rows are, for messages: ``dead letters``.
        option: The option that names such a table.
        code: Of the error for batches that differ from those of the sink's own table.
        key_of: The application that writes for a sink, a query and a table.
        words: Messages of refusals.
        as_it_was: How a batch is started again that an earlier run did not complete.
        differ: The error for a batch with so many rows that are others than those of an earlier run; takes what lets
            the batch in.
        unfit: The error for a table with other columns.
        schema_evolution: Whether the table follows the columns of the rows.
        has_replays: Whether its rows are replayed: a table of replays then goes back with it.
        is_read: Its readers take each row as it comes: rows of a batch that is written elsewhere must not stay.
    """

    keeps: str
    option: str
    code: str
    key_of: KeyOf
    words: Sequence[Words]
    as_it_was: str
    differ: Callable[[str, Batch, int, Sequence[str]], WriteError]
    unfit: Callable[[str, WriteError], WriteError]
    schema_evolution: SchemaEvolution = SchemaEvolution.FAIL
    has_replays: bool = False
    is_read: bool = False

    def way_back(self, catalog: Catalog, side: Table, left: Sequence[SideBatch], own: Table, branch: str) -> str | None:
        """What takes these batches out, and their replays; None if it would take others out too."""
        back = way_back(side, left)
        also = replays_back(catalog, own, side, branch) if back and self.has_replays else ""
        return None if back is None or also is None else f"{back} {also}".strip()


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
        own: The sink's own table, as the batch has found it.
        columns: Of the rows. They may change from batch to batch: see `follow`.
        open_table: Makes the participant that writes a table, from a key and the columns of the rows.
        voted: Batch and number of the newest rows that the tasks' receipts had.
        _first: The first batch that this sink had: an earlier run may have had it too.
        _with_rows: The newest batch of which this sink has seen rows.
        _planned: The newest batch for which tasks got a plan, and the UUID of the table in the plan.
    """

    kind: SideTable
    table: str
    owner: SinkKey
    own: Callable[[], Table]
    columns: pa.Schema
    settings: Settings
    connected: Callable[[], Catalog]
    open_table: Callable[[SinkKey, pa.Schema], Participant]
    voted: tuple[int, int] = field(default=(-1, 0), init=False)
    _tables: dict[SinkKey, Participant] = field(default_factory=dict, init=False)
    _uuid: str = field(default="", init=False)
    _first: int | None = field(default=None, init=False)
    _with_rows: int | None = field(default=None, init=False)
    _planned: tuple[int, str] = field(default=(-1, ""), init=False)

    durability = Durability.PREPARED_SURVIVES

    @property
    def name(self) -> str:  # type: ignore[override] # computed from the table, read-only
        """The participant's name in votes, records and outcomes."""
        return f"{self.table}@{MAIN_BRANCH}"

    @property
    def uuid(self) -> str:
        """Of the table, as it was found last; empty before that."""
        return self._uuid

    def follow(self, columns: pa.Schema) -> None:
        """Write rows with these columns from now on."""
        if not columns.equals(self.columns):
            self.columns = columns
            self._tables.clear()

    def plan_for(self, own: Situation) -> WritePlan:
        """The plan for the tasks of the batch that the own table decides on. Creates the table if it does not exist.

        Raises:
            WriteError: The table has other columns, rows of a later batch, or rows of one that the own table never got.
        """
        batch, entry = own.batch, own.entry
        table, key = self._load_or_create(), self.key(batch)
        self.voted = (batch.batch_id, 0)
        newest = newest_batch(table, key)
        if newest is not None and newest.batch_id > batch.batch_id:
            raise self._rewound(table, batch, newest.batch_id)
        is_behind = newest is not None and entry is not None and entry.batch_id < newest.batch_id < batch.batch_id
        if not _follows(own) or (is_behind and self._has_gaps):
            self._check_none_left(table, batch)
        if newest is not None and newest.batch_id == batch.batch_id:
            self._with_rows = batch.batch_id
        self._planned = batch.batch_id, self._uuid
        return side_plan(self.kind, table, batch, key, self.settings, self.columns)

    def key(self, batch: Batch) -> SinkKey:
        """The application that writes the rows of the query of a batch."""
        return self.kind.key_of(self.owner, batch.query_id, str(self.own().metadata.table_uuid))

    def knows(self, batch: Batch) -> bool:
        """True if the table has, or had before a rollback, rows of the query of this batch."""
        return view_table(self._load_or_create(), self.key(batch)).entry is not None

    def begin(self, batch: Batch) -> SideTransaction:
        """Opens nothing yet."""
        return SideTransaction(batch)

    def pre_commit(self, transaction: SideTransaction, receipts: Sequence[bytes]) -> PreparedRows | None:
        """Prepare the rows; None if there are none."""
        batch, rows, digests = transaction.batch, 0, []
        for receipt in map(_decoded, receipts):
            rows += receipt.rows
            digests.append(receipt.payload_digest)
        self.voted = (batch.batch_id, rows)
        found = self._begun(batch, rows, digest({"rows": rows, "digest": f"{digest_sum(*digests):x}"}))
        if not rows or found.transaction is None:
            return found if rows else None
        if self._planned[0] == batch.batch_id and self._planned[1] != self._uuid:
            raise self._replaced(batch, self._planned[1])
        skipped = found.transaction.writer is None  # by an operator
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
        """The rows of a batch with its open transaction; without one if they are committed, or there are none.

        Raises:
            WriteError: The table has other rows of this batch, or rows of a later one but none of this.
            CommitUnresolved: The catalog gives one answer to loads and another one to requests.
        """
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
                    raise self.kind.differ(self.table, batch, rows, self._ways_out(table, batch, self.kind.as_it_was))
                return found
            if not rows:
                return found
            if there is not None:
                raise self._rewound(table, batch, there.batch_id)
            end = side_end(batch.query_id, getattr(self.own().metadata, "last_sequence_number", 0))
            begun = self._of(batch).begin(Batch(batch.batch_id, "", fingerprint, start=None, end=end))
            if not isinstance(begun, AlreadyCommitted):  # by a driver that came between the two looks
                return replace(found, transaction=begun)
        raise unsettled(self.table, f"the {self.kind.keeps} of batch {batch.batch_id} are")

    def _of(self, batch: Batch) -> Participant:
        key = self.key(batch)
        if key not in self._tables:
            self._tables[key] = self.open_table(key, self.columns)
        return self._tables[key]

    def _load_or_create(self) -> Table:
        catalog = self.connected()
        try:
            return self._known(load_table(catalog, self.table))
        except CatalogError as error:
            if error.code != TABLE_MISSING:
                raise
        return self._known(create_table(catalog, self.table, self.columns))

    def _known(self, table: Table) -> Table:
        """The table. If it has another UUID than before, forget the writers of the old one, as a restart does."""
        check_has_head(table, MAIN_BRANCH)
        uuid = str(table.metadata.table_uuid)
        if uuid != self._uuid:
            self._tables.clear()
            self._uuid = uuid
        return table

    @property
    def _has_gaps(self) -> bool:
        """True for versions of a batch job: one that was given up may be followed by another one."""
        return self.owner.kind is not SinkKind.STREAM

    def _check_none_left(self, table: Table, batch: Batch) -> None:
        """Refuse the first batch of a query if the table has rows of another query's batch that no run can complete.

        A stream that lacks an earlier batch of its own goes on by the word of an operator.
        """
        found = left_behind(table, self.kind.key_of, self.owner, self.own())
        left = [
            one
            for one in found
            if one.query_id != batch.query_id or (self._has_gaps and one.batch_id != batch.batch_id)
        ]
        if not left:
            return
        kind, batches, of_own = self.kind, counted(len(left), "batch"), left[0].query_id == batch.query_id
        back = f"Run batch {left[0].batch_id} again as it was." if of_own else self._way_back(table, left)
        raise WriteError(
            kind.code,
            f"{self.table} has {kind.keeps} of {batches} that {'.'.join(self.own().name())} never got.",
            data=f"Nothing of batch {batch.batch_id} was written.",
            action=(
                f"If another query of sink {self.owner.name!r} is running, stop one of them, and start this one again.",
                *(() if back is None else (f"{back} Then start this one again.",)),
                f"Start the query with another {kind.option}: the {kind.keeps} of these batches stay where they are.",
            ),
            details=[in_snapshots(left)],
        )

    def _rewound(self, table: Table, batch: Batch, newest: int) -> WriteError:
        """The error for a batch after which the table has this later one."""
        kind = self.kind
        return WriteError(
            kind.code,
            f"{self.table} has {kind.keeps} of batch {newest}, but the next batch is {batch.batch_id}.",
            data=f"Nothing of batch {batch.batch_id} was written.",
            action=self._ways_out(table, batch),
        )

    def _ways_out(self, table: Table, batch: Batch, as_it_was: str = "") -> Sequence[str]:
        """What lets a batch in, of which or after which the table has rows: none loses those of a batch that landed.

        A batch that was rolled back has come as it was before, perhaps cut elsewhere by its source.
        """
        own, keeps = self.own(), self.kind.keeps
        landed = Landed(own, self.owner)
        found = side_batches(all_batches(table), self.kind.key_of, self.owner, str(own.metadata.table_uuid))
        later = [one for one in found if one.query_id == batch.query_id and one.batch_id >= batch.batch_id]
        another = f"Start the query with another {self.kind.option}: the earlier {keeps} stay where they are."
        first = (as_it_was,) if as_it_was else ()
        if any(landed.has(one.query_id, one.batch_id, one.after) is not False for one in later):
            return (*first, another)
        general = f"Roll {self.table} back to its snapshot before batch {batch.batch_id}."
        back = self._way_back(table, [one for one in later if one.snapshot])
        others = () if back is not None and self.kind.is_read else (another,)
        back = back or general
        view = view_table(own, self.owner)
        seen = Situation(view, self.owner, batch, view.table_uuid)
        if seen.rolled_back or batch.batch_id in seen.undone:
            first, back = (), f"{'.'.join(own.name())} was rolled back, and {self.table} was not. {back}"
        return (*first, f"{back} Then start the query again.", *others)

    def _way_back(self, table: Table, left: Sequence[SideBatch]) -> str | None:
        return self.kind.way_back(self.connected(), table, left, self.own(), self.owner.branch)

    def _replaced(self, batch: Batch, known_uuid: str) -> BatchRefused:
        key = self.key(batch)
        found = Situation(view_table(self._load_or_create(), key), key, batch, known_uuid)
        return refusal(Reason.TABLE_REPLACED, found, self.kind.words)


def side_plan(
    kind: SideTable, table: Table, batch: Batch, key: SinkKey, settings: Settings, columns: pa.Schema
) -> WritePlan:
    """The plan to write rows with these columns into a side table; raises WriteError if it has other columns."""
    try:
        return plan_write(table, batch, key, settings, columns, case_sensitive=False).plan
    except WriteError as error:
        raise kind.unfit(".".join(table.name()), error) from None


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


def unsettled(table: str, unknown: str) -> CommitUnresolved:
    """The error for a catalog whose loads do not show the state on which it decides requests."""
    return CommitUnresolved(
        "COMMIT_UNRESOLVED",
        f"The catalog shows {table} in an older state than it has, so {unknown} not known.",
        data="This run committed nothing to the table; no file was deleted.",
        action="Start it again. If this happens again, look for a cache between lakesink and the catalog.",
    )


def _decoded(data: bytes) -> Any:
    try:
        return decode(data)
    except ReceiptInvalid as error:
        raise receipt_rejected(str(error)) from None
