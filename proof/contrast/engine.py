"""Where streams run: in one Spark session for all cases, and in drivers of their own where one is to be killed."""

import signal
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from proof.contrast.driver import Orders, run_stream
from proof.drivers import Driver, driver
from testkit.harness import signal_all


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

    def driver(self, orders: Orders, log: Path) -> AbstractContextManager[Driver]:
        """A driver of its own; nothing of it outlives the block."""
        return driver("proof.contrast.driver", [orders.to_json(), *map(str, self.jars)], log)


def freeze(process: Driver) -> None:
    """SIGSTOP to a driver and all that it has started."""
    signal_all(process, signal.SIGSTOP)


def thaw(process: Driver) -> None:
    """SIGCONT, likewise."""
    signal_all(process, signal.SIGCONT)
