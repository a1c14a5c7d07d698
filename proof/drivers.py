"""Drivers of real Spark, each a process that can be killed, and what they share: session, files, patience."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from servers.jars import ROOT
from testkit.harness import kill_all

PATIENCE_SECONDS = 300.0
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_FIRST_FILE_TIME = 1_700_000_000
Driver = subprocess.Popen[str]


def session(master: str, jars: Iterable[Path], conf: Mapping[str, str], folder: Path) -> SparkSession:
    """A session that starts fast, with Iceberg's jars if there are any."""
    jars = tuple(jars)
    own = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        **({"spark.jars": ",".join(map(str, jars)), "spark.sql.extensions": EXTENSIONS} if jars else {}),
        **conf,
    }
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("proof")
    for name, value in own.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def end_with_the_parent() -> None:
    """Wait for the end of standard input, which is there when whoever started this process is gone, and end."""
    sys.stdin.read()
    os._exit(1)


@contextmanager
def driver(module: str, arguments: Iterable[str], log: Path, **variables: str) -> Iterator[Driver]:
    """A driver under way; nothing of it outlives the block.

    Args:
        module: Its program, which calls `end_with_the_parent` in a thread.
        arguments: Of the program.
        log: Where its standard error goes.
        variables: Of its environment.
    """
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), **variables}
    with (
        log.open("a") as errors,
        subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=environment,
            stdin=subprocess.PIPE,  # its end tells the driver that nobody waits for it any more
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            kill_all(process)


def said(process: Driver) -> str:
    """What a driver that runs to its end says of it: the error that stopped its stream; empty if it ended well."""
    assert process.stdout is not None
    process.wait(PATIENCE_SECONDS)
    lines = process.stdout.read().splitlines()
    return str(json.loads(lines[-1])) if lines else f"exit code {process.returncode}"


def wait_until(condition: Callable[[], bool], process: Driver) -> bool:
    """Wait for something to come true while a driver runs; False if the driver ended without."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def arrive(folder: Path, file: int, rows: Iterable[Mapping[str, int]]) -> None:
    """A file of JSON lines comes whole, and with growing times, so that Spark takes them in the order of their numbers.

    Args:
        folder: Of the source; the file is put together beside it.
        file: Its number.
        rows: What is in it.
    """
    staged = folder.parent / "arriving"
    staged.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(staged, (_FIRST_FILE_TIME + file,) * 2)
    staged.rename(source_file(folder, file))


def source_file(folder: Path, file: int) -> Path:
    """Where a file of the source lies."""
    return folder / f"{file:06d}.json"
