"""What doctor says of Spark, by what a probe may answer. `tests/spark/test_probe.py` runs probes."""

import platform
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

from lakesink import __version__
from lakesink_tools.checks.doctor.finding import Finding, Standing
from lakesink_tools.checks.doctor.probe_answer import SparkAnswer, Step, WorkerFacts
from lakesink_tools.checks.doctor.spark import Probed, findings_of

WORKER = WorkerFacts("127.0.0.1", sys.executable, platform.python_version(), __version__, pa.__version__, "")
CANARY = "c4n4ry-Sw0rdfish"


@pytest.fixture
def answer() -> SparkAnswer:
    """All is well."""
    version = pyspark.__version__
    return SparkAnswer(Step.DONE, version, version, "17.0.1", "local[2]", (WORKER,), 20)


def checked(probed: Probed) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings_of(probed)}


def test_an_answer_survives_the_way_between_two_processes(answer: SparkAnswer, tmp_path: Path) -> None:
    assert SparkAnswer.read(tmp_path / "answer") is None
    answer.write(tmp_path / "answer")
    assert SparkAnswer.read(tmp_path / "answer") == answer


@pytest.mark.parametrize(
    ("last_words", "reason", "fix"),
    [
        (
            "java.lang.module.FindException: Module jdk.incubator.vector not found",
            "Module jdk.incubator.vector not found",
            "Spark needs a full Java 17",
        ),
        (
            'WARNING: Using incubator modules\nException in thread "main" java.lang.UnsupportedClassVersionError: x',
            "UnsupportedClassVersionError",
            "Spark needs Java 17",
        ),
        ("JAVA_HOME is not set", "JAVA_HOME is not set", "Spark needs Java 17"),
        (
            "ModuleNotFoundError: No module named 'pyspark'",
            "pyspark",
            'For streams: pip install "lakesink[spark]" "pyspark==4.1.*"',
        ),
        ("java.net.UnknownHostException: box: Name or service not known", "box", "export SPARK_LOCAL_IP=127.0.0.1"),
        ("Error: Could not find or load main class org.apache.spark.X", "main class", "unset SPARK_HOME"),
        (f"java.io.IOError: password={CANARY}", "java.io.IOError", "-m lakesink_tools.checks.doctor.probe"),
        ("", "no reason given", "-m lakesink_tools.checks.doctor.probe"),
    ],
)
def test_why_spark_does_not_start_is_taken_from_its_last_words(last_words: str, reason: str, fix: str) -> None:
    [finding] = findings_of(Probed(None, last_words))
    assert finding.standing is Standing.FAILED
    assert reason in finding.found
    assert fix in finding.fix
    assert CANARY not in finding.found


def test_another_spark_than_the_package_s_fails(answer: SparkAnswer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark-3.5")
    finding = checked(Probed(replace(answer, spark="3.5.6"), ""))["session"]
    assert (finding.standing, finding.fix) == (Standing.FAILED, "unset SPARK_HOME")
    assert "Spark 3.5.6" in finding.found
    assert f"pyspark {pyspark.__version__}" in finding.found


@pytest.mark.parametrize(
    ("fact", "value", "standing"),
    [
        ("lakesink", "0.0.1", Standing.FAILED),
        ("pyarrow", "24.0.0, older than 25.0", Standing.FAILED),
        ("pyarrow", "99.0.0", Standing.WARNING),
        ("python", "3.11.0", Standing.WARNING),
    ],
)
def test_workers_that_differ_from_the_driver_are_told(
    answer: SparkAnswer, fact: str, value: str, standing: Standing
) -> None:
    other = replace(answer.workers[0], **{fact: value.partition(",")[0]})
    finding = checked(Probed(replace(answer, workers=(answer.workers[0], other)), ""))["workers"]
    assert finding.standing is standing
    assert value in finding.found
    assert finding.fix.startswith("export PYSPARK_PYTHON=")


@pytest.mark.parametrize(
    ("step", "failed", "others"),
    [
        (Step.WORKERS, "workers", {"session": Standing.OK, "arrow": Standing.SKIPPED}),
        (Step.ARROW, "arrow", {"session": Standing.OK, "workers": Standing.OK}),
    ],
)
def test_a_job_that_fails_is_told_with_what_it_was_for(
    answer: SparkAnswer, step: Step, failed: str, others: dict[str, Standing]
) -> None:
    wrong = replace(answer, step=step, code="LAKESINK_EXECUTOR_PYTHON", what="It is not there.", action="Install it.")
    findings = checked(Probed(wrong, ""))
    assert findings[failed].standing is Standing.FAILED
    assert findings[failed].found == f"[LAKESINK_EXECUTOR_PYTHON] While {step.value}: It is not there."
    assert {check: finding.standing for check, finding in findings.items() if check != failed} == others
