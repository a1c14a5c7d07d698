"""Doctor's look at Spark: with real sessions, and with a Python that lacks lakesink."""

import os
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from lakesink import __version__
from lakesink_tools.checks.doctor.finding import Standing
from lakesink_tools.checks.doctor.probe import ROWS_A_TASK, probe
from lakesink_tools.checks.doctor.probe_answer import SparkAnswer, Step
from lakesink_tools.checks.doctor.spark import Probed, check_spark, findings_of


@pytest.fixture(scope="module")
def answer(spark: SparkSession) -> SparkAnswer:
    """What a probe says of the tests' own session, all of which is well."""
    found = SparkAnswer(pyspark=pyspark.__version__)
    probe(spark, found)
    return found


def test_a_probe_runs_a_task_in_spark_s_python_and_sends_rows_through_arrow(answer: SparkAnswer) -> None:
    assert (answer.step, answer.code) == (Step.DONE, "")
    assert (answer.spark, answer.master, answer.rows) == (pyspark.__version__, "local[2]", 2 * ROWS_A_TASK)
    [worker] = answer.workers
    assert (worker.executable, worker.lakesink, worker.trouble) == (sys.executable, __version__, "")
    assert {finding.check: finding.standing for finding in findings_of(Probed(answer, ""))} == dict.fromkeys(
        ("session", "workers", "arrow"), Standing.OK
    )


@pytest.mark.driver
def test_a_python_of_spark_that_lacks_lakesink_is_named_with_the_line_that_mends_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare = tmp_path / "bin" / "python"
    bare.parent.mkdir()
    bare.symlink_to(os.path.realpath(sys.executable))  # outside the environment: its packages are not there
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    findings = {finding.check: finding for finding in check_spark()}
    assert findings["connect"].standing is Standing.WARNING
    assert findings["connect"].fix == 'Use format("lakesink"), or unset SPARK_REMOTE.'
    assert findings["session"].standing is Standing.OK
    assert findings["workers"].standing is Standing.FAILED
    assert str(bare) in findings["workers"].found
    assert "No module named 'lakesink'" in findings["workers"].found
    assert findings["workers"].fix.startswith(f"export PYSPARK_PYTHON={sys.executable}")
    assert findings["arrow"].standing is Standing.SKIPPED
    assert list(tmp_path.iterdir()) == [bare.parent]


@pytest.mark.driver
def test_a_spark_that_does_not_come_up_is_ended_in_time() -> None:
    [finding] = check_spark(longest_seconds=0.5)
    assert (finding.check, finding.standing) == ("session", Standing.FAILED)
    assert "within 0.5 s" in finding.found
