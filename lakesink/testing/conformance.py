"""The suite that a two-phase sink passes. Inherit it, and say where the sink writes, how it opens, what readers see.

    class TestMySink(lakesink.testing.SinkConformance):
        @pytest.fixture
        def target(self, tmp_path):
            return tmp_path / "out"

        def open_sink(self, target):
            return MySink(target)

        def read_rows(self, target):
            return [(row["batch"], row["position"]) for row in read(target)]

No Spark is needed: rows come as Arrow, in the two columns of `lakesink.testing.ROWS`, from several tasks, and the real
coordinator runs the batches. What the suite cannot see: a file system that loses what was synced, a network between
driver and target, a machine that loses power. A sink that passes has kept its promises here, on this target.
"""

from lakesink.testing.checks.crashes import CrashChecks
from lakesink.testing.checks.history import HistoryChecks
from lakesink.testing.checks.processes import ProcessChecks
from lakesink.testing.checks.rivals import RivalChecks
from lakesink.testing.checks.rows import RowChecks
from lakesink.testing.checks.votes import VoteChecks


class SinkConformance(RowChecks, VoteChecks, HistoryChecks, CrashChecks, RivalChecks, ProcessChecks):
    """Every promise of `lakesink.two_phase.TwoPhaseCommitSink`, checked. See `SinkUnderTest` for what to supply."""
