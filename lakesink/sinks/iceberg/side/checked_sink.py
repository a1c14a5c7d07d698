"""Row features in front of any sink: its rows are decoded and judged first, and dead letters go to an Iceberg table.

What is found is counted in the votes and kept in the prepared record, beside what the sink behind keeps there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyiceberg.catalog import Catalog

from lakesink.rows.expectations import Expected
from lakesink.rows.letters import LETTERS
from lakesink.rows.plan import OnMalformed, WritePlan
from lakesink.rows.side_rows import SidePlan, application_of
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.checked_receipts import check_documents, check_expectations, check_quality, found_in, opened
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.side.letters_table import DEAD_LETTERS, check_letters, other_letters
from lakesink.sinks.iceberg.side.side_sink import SideTableSink
from lakesink.sinks.iceberg.side.side_tables import SideFactory
from lakesink.sinks.iceberg.sink_table import RunMemory, SinkTable
from lakesink.sinks.iceberg.transaction import BatchWarnings
from lakesink.task.checking import CheckingWriter
from lakesink_catalog.commit.effects import Effects
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.quality import Quality, quality_from
from lakesink_protocol.receipt import Receipt, encode
from lakesink_protocol.two_phase import (
    Durability,
    Payload,
    PreparedLog,
    TaskWriter,
    TwoPhaseCommitSink,
    WriteAgain,
)
from lakesink_protocol.votes import apart, check_tasks, together

_FOUND = "lakesink.quality"
"""Where a payload says what was found in the rows."""


@dataclass(frozen=True, slots=True)
class CheckedTransaction:
    """One open batch: that of the sink behind, and how its rows are checked."""

    batch: Batch
    behind: Any
    expected: tuple[Expected, ...]
    documents: WritePlan | None
    letters: SidePlan | None
    on_malformed: OnMalformed

    @property
    def writer(self) -> TaskWriter | None:
        """The writer for the executors; None if the batch adds no rows."""
        behind = self.behind.writer
        if behind is None:
            return None
        return CheckingWriter(behind, self.expected, self.documents, self.letters, self.on_malformed)

    @property
    def prepared_log(self) -> PreparedLog:
        """That of the sink behind."""
        log: PreparedLog = self.behind.prepared_log
        return log


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """A prepared batch of the sink behind, and what was found in its rows."""

    behind: Any
    quality: Quality

    @property
    def payload(self) -> dict[str, Any]:
        """JSON form for the prepared record."""
        return {**self.behind.payload, _FOUND: self.quality.to_json()}


@dataclass(slots=True)
class CheckedSink(TwoPhaseCommitSink[CheckedTransaction, CheckedRows]):
    """A sink whose rows are checked first.

    Attributes:
        behind: The sink that gets the rows.
        owner: Names it in its dead letters.
        documents: How documents become columns; None if the rows have columns.
        letters: Gets the rows that are put aside; None if none are.
    """

    behind: TwoPhaseCommitSink[Any, Any]
    owner: SinkKey
    settings: Settings
    expected: tuple[Expected, ...] = ()
    documents: WritePlan | None = None
    letters: SideTableSink | None = None
    effects: Effects = field(default_factory=Effects)
    _reported: set[str] = field(default_factory=set, init=False)

    @property
    def name(self) -> str:  # type: ignore[override] # read-only
        """That of the sink behind."""
        return self.behind.name

    @property
    def durability(self) -> Durability:  # type: ignore[override] # read-only
        """That of the sink behind."""
        return self.behind.durability

    @property
    def open_named(self) -> Callable[[str], TwoPhaseCommitSink[Any, Any]] | None:  # type: ignore[override] # read-only
        """See `TwoPhaseCommitSink`."""
        return self.behind.open_named if self.letters is None else self._opened

    def begin(self, batch: Batch) -> CheckedTransaction | AlreadyCommitted:
        """Begin the batch behind; plans its dead letters."""
        begun = self.behind.begin(batch)
        if isinstance(begun, AlreadyCommitted):
            return begun
        letters = None
        if self.letters is not None and begun.writer is not None:
            plan, application = self.letters.plan_for(batch), application_of(self.letters.key(batch))
            letters = SidePlan(self.letters.name, self.owner, "", application, plan)
        return CheckedTransaction(batch, begun, self.expected, self.documents, letters, self.settings.on_malformed)

    def check_inputs(self, batch: Batch, transaction: CheckedTransaction) -> None:
        """See `TwoPhaseCommitSink`."""
        self.behind.check_inputs(batch, transaction.behind)

    def recover(self, transaction: CheckedTransaction, payload: Payload) -> CheckedRows | None:
        """What an earlier run prepared. One that checked nothing has found nothing."""
        own = dict(payload)
        found = own.pop(_FOUND, None)
        try:
            quality = Quality() if found is None else quality_from(found)
        except (ValueError, TypeError, KeyError):
            return None
        behind = self.behind.recover(transaction.behind, own)
        return None if behind is None else CheckedRows(behind, quality)

    def write_rest(self, transaction: CheckedTransaction, receipts: Sequence[bytes]) -> bytes | WriteAgain | None:
        """See `TwoPhaseCommitSink`: the rows were checked by the tasks that left them."""
        heads, of_behind = _opened(receipts)
        if any(head.refused for head in heads):
            return None
        rest = self.behind.write_rest(transaction.behind, of_behind)
        if not isinstance(rest, bytes):
            return rest
        return together([encode(Receipt(len(receipts), 0, (), quality=found_in([], self.expected))), rest])

    def pre_commit(self, transaction: CheckedTransaction, receipts: Sequence[bytes]) -> CheckedRows | None:
        """Judge the batch by what its tasks found, before the sink behind sees their receipts."""
        batch_id = transaction.batch.batch_id
        heads, of_behind = _opened(receipts)
        check_tasks(head.task for head in heads)
        for head in heads:
            check_quality(head, self.expected)
        check_documents(heads, batch_id)
        check_expectations(heads, self.expected, batch_id)
        quality, table = found_in(heads, self.expected), ""
        if self.letters is not None:
            check_letters(quality, sum(head.rows for head in heads), self.letters, self.settings, batch_id)
            table = self.letters.table
        warnings = BatchWarnings(self.name, self.owner.name, self.effects.emit, self._reported)
        warnings.of_receipts(batch_id, quality, self.expected, table)
        warnings.of_documents(batch_id, quality)
        behind = self.behind.pre_commit(transaction.behind, of_behind)
        return None if behind is None else CheckedRows(behind, quality.with_letters(table, ""))

    def commit(self, transaction: CheckedTransaction, prepared: CheckedRows) -> Outcome | None:
        """Commit the batch behind."""
        outcome = self.behind.commit(transaction.behind, prepared.behind)
        return replace(outcome, quality=prepared.quality) if isinstance(outcome, Committed) else outcome

    def abort(self, transaction: CheckedTransaction) -> None:
        """Drop the batch behind."""
        self.behind.abort(transaction.behind)

    def _opened(self, name: str) -> TwoPhaseCommitSink[Any, Any]:
        assert self.letters is not None
        if name == self.letters.name:
            return self.letters
        if self.behind.open_named is None:
            raise other_letters(name, self.letters)
        return self.behind.open_named(name)


def letters_beside(
    owner: SinkKey, table: str, settings: Settings, open_catalog: Callable[[], Catalog], effects: Effects
) -> SideTableSink:
    """The participant for the dead letters of a sink that writes to no table."""
    target = SinkTable("", owner, open_catalog, settings, effects, RunMemory(), ())
    return SideFactory(target, IcebergSink, lambda: None).participant(DEAD_LETTERS, table, LETTERS)


def _opened(receipts: Sequence[bytes]) -> tuple[list[Receipt], list[bytes]]:
    """What the tasks found, and the receipts for the sink behind."""
    pairs = [apart(receipt, 2) for receipt in receipts]
    return [opened(head) for head, _ in pairs], [own for _, own in pairs]
