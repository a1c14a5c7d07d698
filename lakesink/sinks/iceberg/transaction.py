"""One batch of the Iceberg sink between the decision that allows it and its commit, and the warnings about its rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakesink.rows.expectations import Expected, OnUnmet
from lakesink.rows.plan import WritePlan
from lakesink.rows.side_rows import SidePlan
from lakesink.sinks.iceberg.batch_plan import BatchWrite
from lakesink.task.task import ParquetTaskWriter
from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.decision import Decision
from lakesink_catalog.commit.table_change import Locate
from lakesink_protocol import events
from lakesink_protocol.events import Listener
from lakesink_protocol.identity import Batch
from lakesink_protocol.measures import DEAD_LETTERS, UNREAD_BEFORE
from lakesink_protocol.quality import LONGEST_NAME, Quality
from lakesink_protocol.redact import shown
from lakesink_protocol.row_changes import ChangeCounts
from lakesink_protocol.two_phase import PreparedLog, TaskWriter
from lakesink_protocol.verdict import Commit


@dataclass(slots=True)
class IcebergTransaction:
    """One batch that may be written: the decision that allowed it, and how it is written.

    Attributes:
        sides: Where the rows go that side tables get.
        locate: What has located the changes before the commit; None if nothing has.
        followed: How the rows are written that tasks left; None until then, or if they left none.
    """

    batch: Batch
    decision: Decision
    fence: FencedCommit
    write: BatchWrite
    prepared_log: PreparedLog
    expected: tuple[Expected, ...] = ()
    sides: tuple[SidePlan, ...] = ()
    locate: Locate | None = None
    followed: BatchWrite | None = None

    @property
    def logs(self) -> bool:
        """True if a changelog gets the changes of the batch."""
        return any(side.logs for side in self.sides)

    @property
    def writer(self) -> TaskWriter | None:
        """The writer for the executors; None if an operator skips the batch."""
        assert isinstance(self.decision.verdict, Commit)
        if not self.decision.verdict.adds_rows:
            return None
        return self.writer_of(self.write.plan)

    def writer_of(self, plan: WritePlan) -> TaskWriter:
        """A writer of rows under a plan."""
        return ParquetTaskWriter(plan, self.expected, self.sides)


@dataclass(frozen=True, slots=True)
class BatchWarnings:
    """Warnings of one sink.

    Attributes:
        reported: Columns and keys that a warning has named, to name each only once.
    """

    table: str
    sink: str
    emit: Listener
    reported: set[str]

    def of_rows(self, batch_id: int, quality: Quality, expected: Sequence[Expected], letters_table: str) -> None:
        """Warn of each batch with such rows, and once for each key without a column and for each reason of a rescue.

        Omitting a key may be intended, a column for rescued values may be missing, and a stream runs for a long time.
        """
        counts = quality.counts
        if UNREAD_BEFORE in counts:
            self.emit(events.RowsBeforeUnread(batch_id, self.table, counts[UNREAD_BEFORE]))
        if warned := quality.unmet_in_words(one.name for one in expected if one.on_unmet is OnUnmet.WARN):
            self.emit(events.ExpectationsUnmet(batch_id, self.table, warned))
        if quality.puts_aside:
            self.emit(events.RowsPutAside(batch_id, self.table, counts[DEAD_LETTERS], letters_table))
        if names := self._unreported("key", quality.unknown_names):
            self.emit(events.KeysUnknown(batch_id, self.table, Quality(unknown_names=tuple(names)).names_text))
        if reasons := self._unreported("reason", quality.rescued):
            self.emit(events.RowsRescued(batch_id, self.table, ", ".join(reasons)))

    def of_columns(self, batch_id: int, missing: Iterable[str], ignored: Iterable[str]) -> None:
        """Warn once for each column: the query no longer has it and it becomes NULL, or the table lacks it."""
        found = (("column", missing, events.ColumnsMissing), ("ignored column", ignored, events.ColumnsIgnored))
        for kind, names, event in found:
            if columns := ", ".join(shown(name, LONGEST_NAME) for name in self._unreported(kind, names)):
                self.emit(event(batch_id, self.table, self.sink, columns))

    def of_order(self, batch_id: int, unkept: str) -> None:
        """Warn once of a field that keeps files out of the table's sort order."""
        if unkept and self._unreported("order", [unkept]):
            self.emit(events.SortOrderUnkept(batch_id, self.table, shown(unkept, LONGEST_NAME)))

    def of_changes(self, batch_id: int, changes: ChangeCounts | None) -> None:
        """Warn once of a run of Debezium's late deletes: the row before may lack its sequence."""
        if changes is not None and changes.late_deletes and self._unreported("change", ["late delete"]):
            self.emit(events.DeletesLate(batch_id, self.table, changes.late_deletes))

    def _unreported(self, kind: str, names: Iterable[str]) -> list[str]:
        """Those of the names that no earlier warning had."""
        news = [name for name in names if f"{kind} {name}" not in self.reported]
        self.reported.update(f"{kind} {name}" for name in news)
        return news
