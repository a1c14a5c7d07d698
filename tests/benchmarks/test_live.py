"""What the workloads on live streams make of their figures; nothing here is timed."""

import logging
import time
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks import crowd, latency, metrics, recovery, slow_catalog
from benchmarks.crowd import BatchLine, Crowd
from benchmarks.latency import Latencies
from benchmarks.result import quantile
from benchmarks.slow_catalog import Batches
from lakesink.spark.report import Reporter
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome


@pytest.mark.parametrize(("percent", "value"), [(50, 51), (95, 96), (99, 100)])
def test_a_percentile_is_one_of_the_values(percent: int, value: int) -> None:
    assert quantile(range(100, 0, -1), percent) == value


def logged(outcome: Outcome, caplog: pytest.LogCaptureFixture) -> BatchLine | None:
    with caplog.at_level(logging.INFO, "lakesink"):
        Reporter("demo.numbers", "numbers").finished(7, outcome, 1.5, 1.25)
    return BatchLine.of(caplog.records[-1])


def test_a_commit_is_what_a_batch_takes_beside_its_job(caplog: pytest.LogCaptureFixture) -> None:
    line = logged(Committed(1, rows=5, attempts=3), caplog)
    assert line is not None
    assert (line.milliseconds, line.attempts) == (250, 3)


def test_a_batch_that_was_there_before_is_no_commit(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(AlreadyCommitted(1), caplog) is None


def test_a_crowd_tells_its_rate_and_its_retries() -> None:
    lines = [BatchLine(at, milliseconds=10, attempts=attempts) for at, attempts in ((1, 1), (2, 3), (3, 1))]
    [row] = crowd.report([Crowd(2, compacted=True, commits=lines, compactions=4, given_up=1)]).rows
    assert row == ("2 and compaction", 3, 1.0, 10, 10, 2, "4 done, 1 given up")


def test_a_load_tells_percentiles_of_the_time_until_rows_are_visible() -> None:
    result = latency.report({"lakesink": 1000.0}, {(50, "lakesink"): Latencies([float(n) for n in range(100)], 9)})
    assert result.rows == (("50 %, 500 rows/s", "lakesink", 50, 95, 99, 9),)


def test_the_catalog_is_watched_from_one_metadata_file_to_the_next(tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    table = create_table(connect("lake", properties), "demo.numbers", pa.schema([("piece", pa.int32())]))
    first = table.metadata_location
    with latency.watched(tmp_path / "catalog.db", "demo.numbers") as seen:
        while first not in seen:
            time.sleep(0.01)
        table.append(pa.table({"piece": pa.array([3, 4, 3], pa.int32())}))
        while table.metadata_location not in seen:
            time.sleep(0.01)
    assert list(seen) == [first, table.metadata_location]
    moment = seen[table.metadata_location]
    assert latency.visible_pieces(table, seen) == {3: moment, 4: moment}


def test_a_slow_catalog_costs_as_many_calls_as_the_batch_made() -> None:
    found = {(held, "lakesink"): Batches([100 + 2 * held], commits=4, batches=2) for held in (0, 500)}
    assert slow_catalog.report(found).rows[1] == (500, "lakesink", 1100, 1000, "2.0", 2.0)


@pytest.mark.parametrize(("seconds", "reached"), [([6.0, 7.0, 30.0], True), ([6.0, 9.0, 9.0], False)])
def test_recovery_is_judged_by_the_median_beyond_a_bare_start(seconds: list[float], *, reached: bool) -> None:
    [goal] = recovery.report(seconds, bare=[2.5, 3.0, 3.5]).goals
    assert goal.reached is reached


def test_what_metrics_cost_is_judged_by_pairs() -> None:
    result = metrics.report([[10.0, 20.0, 30.0], [10.1, 20.2, 36.0]], [[100.0, 200.0, 90.0], [101.0, 199.0, 99.0]], 0.3)
    assert [goal.reached for goal in result.goals] == [True, True]
    assert result.rows[0] == ("W1/13, processor seconds", 20.0, 20.2, "1.01 (1.01-1.20)")
