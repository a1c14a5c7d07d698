"""Drivers killed at random moments, again and again, until one gets through; the seed is printed and replays."""

import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from lakesink_catalog.errors import CatalogError
from tests.processes.harness import PATIENCE_SECONDS, Stream, expected, kill_all, own_snapshots

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

KILLS = 30
FILES_AHEAD = 100
"""Files that wait when a driver starts: more than it can take before it is killed, however fast the machine."""
LONGEST_WORK_SECONDS = 3.0
AT_WORK = "lakesink.query.started"


def test_thirty_kills_at_random_moments_leave_every_row_once(tmp_path: Path) -> None:
    seed = int(os.environ.get("LAKESINK_SEED", random.SystemRandom().randrange(2**32)))
    print(f"LAKESINK_SEED={seed}")
    chance = random.Random(seed)
    stream = Stream(tmp_path)
    files = 0

    for _ in range(KILLS):
        stream.add_files(files, committed(stream) + FILES_AHEAD)
        files = committed(stream) + FILES_AHEAD
        kill_at_work(stream, chance.uniform(0, LONGEST_WORK_SECONDS))
    print(f"batches_before_the_last_run={committed(stream)}")

    with stream.driver() as driver:
        assert driver.wait(PATIENCE_SECONDS * 5) == 0, stream.log()[-5000:]
    assert stream.rows() == expected(range(files))
    assert [batch for batch, _, _ in own_snapshots(stream.load())] == list(range(files))


def committed(stream: Stream) -> int:
    try:
        return len(own_snapshots(stream.load()))
    except CatalogError:  # no driver has come as far as to make the table
        return 0


def kill_at_work(stream: Stream, seconds: float) -> None:
    """Kill a driver so long after its first batch has begun; before, Spark only starts."""
    before = runs(stream)
    with stream.driver() as driver:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while runs(stream) == before:
            assert driver.poll() is None, stream.log()[-5000:]
            assert time.monotonic() < deadline, "the driver does not come to its first batch"
            time.sleep(0.02)
        with pytest.raises(subprocess.TimeoutExpired):
            driver.wait(seconds)
        kill_all(driver)


def runs(stream: Stream) -> int:
    return stream.log().count(AT_WORK) if (stream.root / "driver.log").exists() else 0
