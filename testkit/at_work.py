"""Drivers that are killed while they run batches."""

import subprocess
import time

import pytest

from lakesink_protocol.errors import CatalogError
from testkit.harness import PATIENCE_SECONDS, Stream, kill_all, own_snapshots

AT_WORK = "lakesink.query.started"


def committed(stream: Stream) -> int:
    try:
        return len(own_snapshots(stream.load()))
    except CatalogError:  # no driver has created the table yet
        return 0


def kill_at_work(stream: Stream, seconds: float) -> float:
    """Kill a driver some seconds after its first batch began, because Spark's start takes long; when, in epoch ms."""
    before = runs(stream)
    with stream.driver() as driver:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while runs(stream) == before:
            assert driver.poll() is None, stream.log()[-5000:]
            assert time.monotonic() < deadline, "the driver does not come to its first batch"
            time.sleep(0.02)
        with pytest.raises(subprocess.TimeoutExpired):
            driver.wait(seconds)
        killed_ms = time.time_ns() / 1e6
        kill_all(driver)
        return killed_ms


def runs(stream: Stream) -> int:
    return stream.log().count(AT_WORK) if (stream.root / "driver.log").exists() else 0
