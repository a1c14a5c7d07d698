"""Starts Spark as a driver would, with a probe in a separate process, and turns its answer into findings."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory

from lakesink._version import __version__
from lakesink.rows.libraries import OLDEST, is_too_old
from lakesink_catalog.words import counted
from lakesink_protocol.redact import redact
from lakesink_tools.checks.child import child, end
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing
from lakesink_tools.checks.doctor.probe_answer import SparkAnswer, Step, WorkerFacts

LONGEST_SECONDS = 180.0
_PROBE = "lakesink_tools.checks.doctor.probe"
_REMOTE, _HOME = "SPARK_REMOTE", "SPARK_HOME"
_TELLING = re.compile(r"^(?!\s*(?:at|File|WARNING:) ).*(?:Exception|Error)\b.*$|^JAVA_HOME is not set$", re.MULTILINE)
_LONGEST_TELLING = 200
_SYMPTOMS = (
    (
        re.compile("No module named 'pyspark'"),
        'For streams: pip install "lakesink[spark]" "pyspark==4.1.*". Audits need no Spark.',
    ),
    (re.compile("jdk.incubator.vector"), "Spark needs a full Java 17 or newer: see the check java."),
    (re.compile("UnsupportedClassVersionError|JAVA_HOME is not set"), "Spark needs Java 17 or newer: see java."),
    (re.compile("UnknownHostException|BindException"), "export SPARK_LOCAL_IP=127.0.0.1"),
    (re.compile("ClassNotFoundException|NoSuchMethodError|Could not find or load main class"), f"unset {_HOME}"),
)


@dataclass(frozen=True, slots=True)
class Probed:
    """The end of a probe."""

    answer: SparkAnswer | None  # None if the probe wrote no answer
    last_words: str  # the output of the probe and its JVM
    seconds: float | None = None  # time limit that stopped it; None if it ended by itself


def check_spark(longest_seconds: float = LONGEST_SECONDS) -> list[Finding]:
    """Test a session, a task in Spark's Python, and rows through Arrow to lakesink's writer."""
    with TemporaryDirectory(prefix="lakesink-doctor-") as folder:
        probed = _run_probe(Path(folder, "answer.json"), longest_seconds)
    findings = findings_of(probed)
    if os.environ.get(_REMOTE):
        found = (
            f"{_REMOTE} is set, so PySpark creates Spark Connect sessions, where lakesink.stream and append cannot run."
        )
        fix = f'Use format("lakesink"), or unset {_REMOTE}.'
        findings.insert(0, Finding(Part.SPARK, "connect", Standing.WARNING, found, fix))
    return findings


def findings_of(probed: Probed) -> list[Finding]:
    """Findings for the end of a probe."""
    answer = probed.answer
    if answer is None or (answer.code and answer.step is Step.SESSION):
        return [_not_started(probed)]
    findings = [_session(answer)]
    if answer.step is Step.WORKERS and answer.code:
        return [*findings, _job_failed("workers", answer), _skipped("arrow", "no task ran in Spark's Python")]
    findings += [_workers(answer.workers)]
    if answer.step is Step.WORKERS:
        return [*findings, _skipped("arrow", "Spark's Python lacks packages")]
    if answer.code:
        return [*findings, _job_failed("arrow", answer)]
    found = f"{counted(answer.rows, 'row')} to lakesink's writer and back"
    return [*findings, Finding(Part.SPARK, "arrow", Standing.OK, found)]


def _run_probe(path: Path, longest_seconds: float) -> Probed:
    environment = {name: value for name, value in os.environ.items() if name != _REMOTE}
    command = [sys.executable, "-m", _PROBE, str(path)]
    with child(command, environment, subprocess.PIPE) as process:
        try:
            last_words, _ = process.communicate(timeout=longest_seconds)
        except subprocess.TimeoutExpired:
            end(process)
            return Probed(None, process.communicate()[0], longest_seconds)
    return Probed(SparkAnswer.read(path), last_words)


def _not_started(probed: Probed) -> Finding:
    if probed.seconds is not None:
        found = f"Spark did not finish a small job within {probed.seconds:g} s."
        fix = "Check that spark.master (spark-defaults.conf) names a running cluster with free cores. Then retry."
        return Finding(Part.SPARK, "session", Standing.FAILED, found, fix)
    words = probed.last_words + (f"\n{probed.answer.what}" if probed.answer else "")
    telling = _TELLING.search(words)
    reason = redact(telling[0].strip())[:_LONGEST_TELLING] if telling else "no reason given"
    advice = next((advice for symptom, advice in _SYMPTOMS if symptom.search(words)), "")
    fix = advice or f"See the whole output: {shlex.quote(sys.executable)} -m {_PROBE} /dev/null"
    return Finding(Part.SPARK, "session", Standing.FAILED, f"Spark does not start: {reason}", fix)


def _session(answer: SparkAnswer) -> Finding:
    found = f"Spark {answer.spark}, Java {answer.java}, master {redact(answer.master)}"
    if answer.spark != answer.pyspark:
        found += f"; but the Python package is pyspark {answer.pyspark}"
        fix = f"unset {_HOME}" if os.environ.get(_HOME) else f"pip install pyspark=={answer.spark}"
        return Finding(Part.SPARK, "session", Standing.FAILED, found, fix)
    return Finding(Part.SPARK, "session", Standing.OK, found)


def _workers(workers: Sequence[WorkerFacts]) -> Finding:
    found = "; ".join(_described(worker) for worker in workers)
    can_write = [
        one.lakesink == __version__ and one.pyarrow and not is_too_old("pyarrow", one.pyarrow) for one in workers
    ]
    if not all(can_write):
        return Finding(Part.SPARK, "workers", Standing.FAILED, found, _set_python())
    own = metadata.version("pyarrow")
    if any((worker.python, worker.pyarrow) != (python_version(), own) for worker in workers):
        found += f". The driver has Python {python_version()}, pyarrow {own}"
        return Finding(Part.SPARK, "workers", Standing.WARNING, found, _set_python())
    return Finding(Part.SPARK, "workers", Standing.OK, found)


def _described(worker: WorkerFacts) -> str:
    place = f"Python {worker.python} at {worker.executable} on {worker.host}"
    if worker.trouble:
        return f"{place}: {worker.trouble}"
    other = "" if worker.lakesink == __version__ else f", but the driver's is {__version__}"
    old = f", older than {OLDEST['pyarrow']}" if is_too_old("pyarrow", worker.pyarrow) else ""
    return f"{place}: pyarrow {worker.pyarrow}{old}, lakesink {worker.lakesink}{other}"


def _job_failed(check: str, answer: SparkAnswer) -> Finding:
    fix = _set_python() if answer.code == "LAKESINK_EXECUTOR_PYTHON" else answer.action
    found = f"[{answer.code}] While {answer.step.value}: {answer.what}"
    return Finding(Part.SPARK, check, Standing.FAILED, found, fix)


def _skipped(check: str, why: str) -> Finding:
    return Finding(Part.SPARK, check, Standing.SKIPPED, f"not tried: {why}")


def _set_python() -> str:
    return f"export PYSPARK_PYTHON={shlex.quote(sys.executable)}  # on every machine that runs tasks"
