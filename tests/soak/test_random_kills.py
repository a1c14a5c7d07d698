"""Drivers killed at random moments, again and again, until one gets through; the seed is printed and replays."""

import os
import random
from pathlib import Path

import pytest

from testkit.at_work import committed, kill_at_work
from testkit.harness import PATIENCE_SECONDS, Stream, expected, own_snapshots

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

KILLS = 30
FILES_AHEAD = 100
"""Files that wait when a driver starts: more than it can take before it is killed, however fast the machine."""
LONGEST_WORK_SECONDS = 3.0


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
    batches = batches_of(stream.checkpoint)
    assert [batch for batch, _, _ in own_snapshots(stream.load())] == list(range(batches))
    assert files - KILLS <= batches <= files, "a file a batch, but for kills between the source's log and Spark's own"


def batches_of(checkpoint: Path) -> int:
    """Batches that Spark has recorded as done.

    They can be fewer than the files: where a kill falls after the file source has logged its next file and before
    Spark has logged the batch, the batch is planned anew and takes one file more.
    """
    return 1 + max(int(entry.name) for entry in (checkpoint / "commits").iterdir() if entry.name.isdecimal())
