"""The suite that a two-phase sink must pass. Inherit it, and supply target, sink and visible rows.

    class TestMySink(lakesink.testing.SinkConformance):
        @pytest.fixture
        def target(self, tmp_path):
            return tmp_path / "out"

        def open_sink(self, target):
            return MySink(target)

        def read_rows(self, target):
            return [(row["batch"], row["position"]) for row in read(target)]

The suite needs no Spark: several tasks write Arrow rows with the two columns of `lakesink.testing.ROWS`, and the real
coordinator runs the batches. It cannot test a file system that loses synced data, a network between driver and target,
or a power failure. A sink that passes has kept its promises in these checks, on this target.
"""

from lakesink_tools.testing.checks.crashes import CrashChecks
from lakesink_tools.testing.checks.history import HistoryChecks
from lakesink_tools.testing.checks.processes import ProcessChecks
from lakesink_tools.testing.checks.rivals import RivalChecks
from lakesink_tools.testing.checks.rows import RowChecks
from lakesink_tools.testing.checks.votes import VoteChecks


class SinkConformance(RowChecks, VoteChecks, HistoryChecks, CrashChecks, RivalChecks, ProcessChecks):
    """Checks every promise of `lakesink.two_phase.TwoPhaseCommitSink`. `SinkUnderTest` lists the methods to supply."""
