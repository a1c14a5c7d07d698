"""Row features in front of any sink: tasks check its rows like a table's; dead letters go to an Iceberg table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg.catalog import Catalog

from lakesink.rows.expectations import Expected, without_marks
from lakesink.rows.letters import LETTERS
from lakesink.rows.plan import WritePlan
from lakesink.rows.schema import arrow_schema, parse_schema
from lakesink.rows.side_rows import SidePlan, application_of
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import expected_of
from lakesink.sinks.iceberg.checked_receipts import decoded, judged
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.preflight import plan_in_front
from lakesink.sinks.iceberg.side.letters_table import DEAD_LETTERS, check_letters, letters_table, other_letters
from lakesink.sinks.iceberg.side.side_sink import SideTableSink
from lakesink.sinks.iceberg.side.side_tables import side_participant
from lakesink.sinks.iceberg.sink_table import RunMemory, SinkTable
from lakesink.sinks.iceberg.transaction import BatchWarnings
from lakesink.sinks.staged.sink import StagedSink
from lakesink.sinks.unused_accept import UnusedAcceptWarning
from lakesink.task.task import ParquetTaskWriter
from lakesink_catalog.commit.effects import Effects
from lakesink_protocol.coordinator import Sink
from lakesink_protocol.errors import WriteError
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.quality import Quality, quality_from
from lakesink_protocol.receipt import Receipt
from lakesink_protocol.two_phase import Durability, Payload, PreparedLog, TaskWriter, TwoPhaseCommitSink, WriteAgain
from lakesink_protocol.votes import apart

_FOUND = "lakesink.quality"
"""Where a payload says what was found in the rows, beside what the sink behind keeps there."""


@dataclass(frozen=True, slots=True)
class CheckedTransaction:
    """One open batch of the sink behind, and how tasks check its rows."""

    batch: Batch
    behind: Any
    prepared_log: PreparedLog
    checks: ParquetTaskWriter

    @property
    def writer(self) -> TaskWriter | None:
        """The writer for the executors; None if the batch adds no rows."""
        behind = self.behind.writer
        return None if behind is None else replace(self.checks, behind=behind)


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """A prepared batch of the sink behind, and what was found in its rows."""

    behind: Any
    quality: Quality

    @property
    def payload(self) -> dict[str, Any]:
        """JSON form for the prepared record."""
        return {**self.behind.payload, _FOUND: self.quality.to_json()}


class _Rest(NamedTuple):
    """Stands for the writer behind where its sink has written the rows that tasks left."""

    receipt: bytes

    def write(self, *_: Any) -> bytes:
        return self.receipt


@dataclass(slots=True)
class CheckedSink(TwoPhaseCommitSink[CheckedTransaction, CheckedRows]):
    """A sink whose rows are checked first. See `TwoPhaseCommitSink` for its methods.

    Attributes:
        behind: The sink that gets the rows.
        owner: Names it in its dead letters.
        incoming: The rows as they arrive, with their marks.
        open_catalog: Opens the catalog of the dead letters; None if no row is put aside.
        letters: Their participant.
    """

    behind: Sink
    owner: SinkKey
    settings: Settings
    incoming: pa.Schema
    open_catalog: Callable[[], Catalog] | None = None
    case_sensitive: bool = False
    effects: Effects = field(default_factory=Effects)
    name: str = field(init=False)
    durability: Durability = field(init=False)
    open_named: Callable[[str], Sink] | None = field(init=False)
    expected: tuple[Expected, ...] = field(init=False)
    plan: WritePlan = field(init=False)
    letters: SideTableSink | None = field(default=None, init=False)
    _warnings: BatchWarnings = field(init=False)

    def __post_init__(self) -> None:
        self.name, self.durability = self.behind.name, self.behind.durability
        self._warnings = BatchWarnings(self.name, self.owner.name, self.effects.emit, set())
        self.expected = expected_of(self.incoming, self.settings)
        self.plan = plan_in_front(self.owner, self.settings, self.incoming, case_sensitive=self.case_sensitive)
        if self.open_catalog is not None:
            own = SinkTable("", self.owner, self.open_catalog, self.settings, self.effects, RunMemory(), ())
            name, of_behind = letters_table("", self.settings), UnusedAcceptWarning(None, "", "", "")
            if isinstance(self.behind, StagedSink):
                of_behind = self.behind.accept_warning
            of_behind.is_shared = True
            self.letters = side_participant(own, IcebergSink, of_behind, DEAD_LETTERS, name, LETTERS)
        self.open_named = self.behind.open_named if self.letters is None else self._opened

    @property
    def columns(self) -> pa.Schema:
        """What the sink behind gets."""
        decoded = self.settings.decode is not None
        return arrow_schema(parse_schema(self.plan.schema_json)) if decoded else without_marks(self.incoming)

    def begin(self, batch: Batch) -> CheckedTransaction | AlreadyCommitted:
        """Begin the batch behind, and plan its dead letters."""
        begun = self.behind.begin(batch)
        if isinstance(begun, AlreadyCommitted):
            return begun
        sides: tuple[SidePlan, ...] = ()
        if self.letters is not None and begun.writer is not None:
            try:
                plan, application = self.letters.plan_for(batch), application_of(self.letters.key(batch))
            except WriteError:
                if not isinstance(again := self.behind.begin(batch), AlreadyCommitted):  # by a rival that went on
                    raise
                return again
            sides = (SidePlan(self.letters.name, self.owner, "", application, plan),)
        return CheckedTransaction(batch, begun, begun.prepared_log, ParquetTaskWriter(self.plan, self.expected, sides))

    def check_inputs(self, batch: Batch, transaction: CheckedTransaction) -> None:
        """By the sink behind."""
        self.behind.check_inputs(batch, transaction.behind)

    def recover(self, transaction: CheckedTransaction, payload: Payload) -> CheckedRows | None:
        """What an earlier run prepared after the same checks."""
        own = dict(payload)
        try:
            quality = quality_from(own.pop(_FOUND))
        except (ValueError, TypeError, KeyError):
            return None
        behind = self.behind.recover(transaction.behind, own)
        return None if behind is None else CheckedRows(behind, quality)

    def write_rest(self, transaction: CheckedTransaction, receipts: Sequence[bytes]) -> bytes | WriteAgain | None:
        """By the sink behind: the tasks have checked the rows that they left."""
        heads, of_behind = _apart(receipts)
        if any(head.refused for head in heads):
            return None
        rest = self.behind.write_rest(transaction.behind, of_behind)
        if not isinstance(rest, bytes):
            return rest
        return replace(transaction.checks, behind=_Rest(rest)).write(len(receipts), iter(()))

    def pre_commit(self, transaction: CheckedTransaction, receipts: Sequence[bytes]) -> CheckedRows:
        """Judge the batch by what its tasks found, before the sink behind sees their receipts."""
        batch_id, table = transaction.batch.batch_id, ""
        heads, of_behind = _apart(receipts)
        quality = judged(heads, self.expected, batch_id)
        if self.letters is not None:
            table = self.letters.table
            check_letters(quality, sum(head.rows for head in heads), self.letters, self.settings, batch_id)
        self._warnings.of_rows(batch_id, quality, self.expected, table)
        behind = self.behind.pre_commit(transaction.behind, of_behind)
        return CheckedRows(behind, quality.with_letters(table, ""))

    def commit(self, transaction: CheckedTransaction, prepared: CheckedRows) -> Outcome | None:
        """Commit the batch behind."""
        outcome = self.behind.commit(transaction.behind, prepared.behind)
        return replace(outcome, quality=prepared.quality) if isinstance(outcome, Committed) else outcome

    def abort(self, transaction: CheckedTransaction) -> None:
        """Drop the batch behind."""
        self.behind.abort(transaction.behind)

    def _opened(self, name: str) -> Sink:
        assert self.letters is not None
        if name == self.letters.name:
            return self.letters
        if self.behind.open_named is None:
            raise other_letters(name, self.letters)
        return self.behind.open_named(name)


def _apart(receipts: Sequence[bytes]) -> tuple[list[Receipt], list[bytes]]:
    """What the tasks found, and their receipts for the sink behind."""
    pairs = [apart(receipt, 2) for receipt in receipts]
    return [decoded(head) for head, _ in pairs], [own for _, own in pairs]
