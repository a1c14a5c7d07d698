"""Where streams run: in one Spark session for all cases, and in drivers of their own where one is to be killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from proof.contrast.driver import Orders, run_stream
from servers.jars import ROOT
from tests.processes.harness import kill_all, signal_all

PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Engine:
    """Runs streams.

    Attributes:
        spark: Shared by all that is not to be killed.
        jars: Of Iceberg; none if they cannot be had.
    """

    spark: SparkSession
    jars: tuple[Path, ...]

    def run(self, orders: Orders) -> str:
        """In the shared session; see `run_stream`."""
        return run_stream(self.spark, orders)

    @contextmanager
    def driver(self, orders: Orders, log: Path) -> Iterator["subprocess.Popen[str]"]:
        """A driver of its own; nothing of it outlives the block."""
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "proof.contrast.driver", orders.to_json(), *map(str, self.jars)]
        with log.open("a") as errors:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,  # its end tells the driver that nobody waits for it any more
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            kill_all(process)


def said(process: "subprocess.Popen[str]") -> str:
    """What a driver that runs to its end says of it: the error that stopped its stream; empty if it ended well."""
    assert process.stdout is not None
    process.wait(PATIENCE_SECONDS)
    lines = process.stdout.read().splitlines()
    return str(json.loads(lines[-1])) if lines else f"exit code {process.returncode}"


def freeze(process: "subprocess.Popen[str]") -> None:
    """SIGSTOP to a driver and all that it has started."""
    signal_all(process, signal.SIGSTOP)


def thaw(process: "subprocess.Popen[str]") -> None:
    """SIGCONT, likewise."""
    signal_all(process, signal.SIGCONT)


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> bool:
    """Wait for something to come true while a driver runs; False if the driver ended without."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True
