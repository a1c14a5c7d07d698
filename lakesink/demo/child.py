"""A Spark driver as a child process: its environment, and its end with its parent."""

import os
import sys
import threading

from lakesink_catalog.connect.catalog import HOME_VARIABLE


def end_with_parent() -> None:
    """Called in a `lakesink.checks.child`: it now ends when its parent ends."""
    threading.Thread(target=_wait_for_the_end, daemon=True).start()


def _wait_for_the_end() -> None:
    os.read(sys.stdin.fileno(), 1)  # nothing is ever written: this returns when the other end closes
    os._exit(1)


def driver_environment(lakehouse: os.PathLike[str]) -> dict[str, str]:
    """The environment of a Spark driver: this Python for its executors, and the embedded catalog of a folder."""
    own = {
        HOME_VARIABLE: os.fspath(lakehouse),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    environment = os.environ | own
    environment.pop("SPARK_REMOTE", None)
    return environment
