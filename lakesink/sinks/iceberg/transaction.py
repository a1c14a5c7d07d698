"""One batch of the Iceberg sink between the decision that allows it and its commit."""

from dataclasses import dataclass

from lakesink.rows.expectations import Expected
from lakesink.rows.plan import WritePlan
from lakesink.rows.side_rows import SidePlan
from lakesink.sinks.iceberg.evolution import BatchWrite
from lakesink.task.change_task import ChangeTaskWriter, LoggingTaskWriter
from lakesink.task.task import ParquetTaskWriter, QuarantiningTaskWriter
from lakesink_catalog.commit.decision import Decision
from lakesink_catalog.commit.fence import FencedCommit
from lakesink_catalog.commit.located import Locate
from lakesink_protocol.identity import Batch
from lakesink_protocol.two_phase import PreparedLog, TaskWriter
from lakesink_protocol.verdict import Commit


@dataclass(slots=True)
class IcebergTransaction:
    """One batch that may be written: the decision that allowed it, and how it is written.

    Attributes:
        side: Where the rows go that a side table gets; None if there is none.
        locate: What has located the changes before the commit; None if nothing has.
        followed: How the rows are written that tasks left; None until then, or if they left none.
    """

    batch: Batch
    decision: Decision
    fence: FencedCommit
    write: BatchWrite
    prepared_log: PreparedLog
    expected: tuple[Expected, ...] = ()
    side: SidePlan | None = None
    locate: Locate | None = None
    followed: BatchWrite | None = None

    @property
    def logs(self) -> bool:
        """True if a changelog gets the changes of the batch."""
        return self.side is not None and self.write.plan.changes is not None

    @property
    def writer(self) -> TaskWriter | None:
        """The writer for the executors; None if an operator skips the batch."""
        assert isinstance(self.decision.verdict, Commit)
        if not self.decision.verdict.adds_rows:
            return None
        return self.writer_of(self.write.plan, self.expected)

    def writer_of(self, plan: WritePlan, expected: tuple[Expected, ...] = ()) -> TaskWriter:
        """A writer of rows under a plan."""
        if plan.changes is not None:
            changes = ChangeTaskWriter(plan, expected)
            return changes if self.side is None else LoggingTaskWriter(changes, self.side)
        writer = ParquetTaskWriter(plan, expected)
        return writer if self.side is None else QuarantiningTaskWriter(writer, self.side)
