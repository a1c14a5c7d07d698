"""Spark SQL in a process of its own, with jars and settings of its own: the session of the tests has neither."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from servers.jars import ROOT

PATIENCE_SECONDS = 120
_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # short runs: start fast
    "spark.driver.memory": "1g",
    "spark.master": "local[2]",
    "spark.sql.catalogImplementation": "in-memory",  # else it leaves a Hive metastore in the current folder
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class SparkFailed(Exception):
    """Spark refused or failed; its own words."""


@dataclass(slots=True)
class SparkSQL:
    """One session. Use `spark_sql`.

    Attributes:
        folder: Its log, and answers on their way.
        process: The session's process.
    """

    folder: Path
    process: "subprocess.Popen[str]"

    def sql(self, statement: str) -> pa.Table:
        """Run one statement to its end; times are in UTC.

        Args:
            statement: Without a semicolon.

        Raises:
            SparkFailed: Spark's error, or the end of its log if it died.
        """
        to, answers = self.process.stdin, self.process.stdout
        assert to is not None
        assert answers is not None
        to.write(json.dumps(statement) + "\n")
        to.flush()
        line = answers.readline()
        if not line:
            said = (self.folder / "spark.log").read_text(errors="replace")
            raise SparkFailed(f"Spark died: {said[-3000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise SparkFailed(answer["error"])
        with pa.OSFile(answer["file"]) as file:
            found: pa.Table = pa.ipc.open_file(file).read_all()
            return found


@contextmanager
def spark_sql(
    folder: Path, conf: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> Iterator[SparkSQL]:
    """A session that runs, and ends with the block.

    Args:
        folder: Made if it is not there.
        conf: Settings above those that a short run needs.
        environment: Added to its environment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    call = [sys.executable, "-m", __name__, str(folder), json.dumps({**_CONF, **conf})]
    own = {**os.environ, **(environment or {}), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    with (folder / "spark.log").open("ab") as log:
        process = subprocess.Popen(
            call, env=own, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        yield SparkSQL(folder, process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()  # that ends it, its JVM too
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _serve(folder: Path, conf: Mapping[str, str], asked: IO[str]) -> None:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only the session's own process needs it

    builder = SparkSession.builder.appName("spark-sql")
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    for number, line in enumerate(asked):
        print(json.dumps(_answer(session, json.loads(line), folder / f"{number}.arrow")), flush=True)
    session.stop()


def _answer(session: Any, statement: str, place: Path) -> dict[str, str]:
    try:
        found = session.sql(statement).toArrow()
    except Exception as error:  # noqa: BLE001 - whatever Spark says is the answer
        return {"error": _causes(error)}
    with pa.OSFile(str(place), "wb") as file, pa.ipc.new_file(file, found.schema) as writer:
        writer.write_table(found)
    return {"file": str(place)}


def _causes(error: Exception) -> str:
    """What Spark says, without the lines that say where in its code."""
    lines = f"{type(error).__name__}: {error}".splitlines()
    return "\n".join(line for line in lines if not line.startswith("\t"))[:3000]


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.stdin)
