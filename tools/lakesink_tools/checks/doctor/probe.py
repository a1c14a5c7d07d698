"""Checks that Spark works here, in a process of its own: ``python -m lakesink_tools.checks.doctor.probe ANSWER_FILE``.

Starts a session with the environment and configuration of the user's driver, and runs two small jobs. One collects
facts about Spark's Python processes, the other sends rows like a stream's batch, with its version handshake. Writes
only the answer file.
"""

import importlib
import platform
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from lakesink.spark.rows.arrow_limits import ArrowBatchLimits
from lakesink.spark.rows.batch_rows import FrameRows
from lakesink.spark.rows.job import RowsJob
from lakesink.spark.rows.transport import encode_for_transport
from lakesink.spark.spark_errors import JAVA_ERRORS, job_error, whole_text
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.redact import describe
from lakesink_tools.checks.doctor.probe_answer import SparkAnswer, Step, WorkerFacts

MOST_TASKS = 8
ROWS_A_TASK = 1000


def main(path: Path) -> None:
    """Probe, and write the answer to a file, also after a failure."""
    answer = SparkAnswer(pyspark=pyspark.__version__)
    try:
        session = SparkSession.builder.appName("lakesink-doctor").config("spark.ui.enabled", "false").getOrCreate()
        probe(session, answer)
    except LakesinkError as error:
        answer.code, answer.what, answer.action = error.code, error.what, error.action
    except Exception as error:  # noqa: BLE001 - any failure is an answer
        answer.code, answer.what = "LAKESINK_UNEXPECTED", describe(error)
    answer.write(path)


def probe(session: SparkSession, answer: SparkAnswer) -> None:
    """Inspect a session and run the two jobs. Fills `answer` step by step: it shows where a failed probe stopped."""
    context = session.sparkContext
    context.setLogLevel("ERROR")
    jvm = context._jvm  # noqa: SLF001 - PySpark does not report which Java it started
    assert jvm is not None
    system = jvm.java.lang.System
    answer.spark, answer.master = session.version, str(context.master)
    answer.java = f"{system.getProperty('java.version')} ({system.getProperty('java.home')})"
    tasks = max(1, min(context.defaultParallelism, MOST_TASKS))
    answer.step = Step.WORKERS
    answer.workers = _workers(session, tasks)
    if all(worker.lakesink and worker.pyarrow for worker in answer.workers):
        answer.step = Step.ARROW
        answer.rows = _rows_through_arrow(session, tasks)
        answer.step = Step.DONE


def _workers(session: SparkSession, tasks: int) -> tuple[WorkerFacts, ...]:
    try:
        found = session.sparkContext.parallelize(range(tasks), tasks).map(_facts).collect()
    except JAVA_ERRORS as error:
        raise job_error(whole_text(error)) from None
    return tuple(dict.fromkeys(WorkerFacts(**facts) for facts in found))


def _rows_through_arrow(session: SparkSession, tasks: int) -> int:
    rows = session.range(0, tasks * ROWS_A_TASK, 1, tasks)
    limits = ArrowBatchLimits(session.conf, rows.schema.jsonValue())
    job = RowsJob(FrameRows(*encode_for_transport(rows)), limits, lambda _: False)
    try:
        return sum(map(int, job.write({"probe": CountingWriter()}).receipts("probe")))
    finally:
        limits.restore()


def _facts(_: int) -> dict[str, str]:
    """Fields of `WorkerFacts`. Pickled by value, as all in the main module: lakesink may be missing in the task."""
    found = {"lakesink": "", "pyarrow": ""}
    trouble = ""
    for name in found:
        try:
            found[name] = str(importlib.import_module(name).__version__)
        except Exception as error:  # noqa: BLE001 - a broken package may raise anything
            trouble = trouble or f"{type(error).__name__}: {error}"[:200]
    own = {"host": socket.gethostname(), "executable": sys.executable, "python": platform.python_version()}
    return {**own, "trouble": trouble, **found}


class CountingWriter:
    """A `TaskWriter` that writes nothing; its receipt is the number of its rows."""

    def write(self, _task: int, batches: Iterator[Any]) -> bytes:
        """Count one task's rows."""
        return str(sum(batch.num_rows for batch in batches)).encode()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
