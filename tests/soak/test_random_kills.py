"""Drivers killed at random moments, again and again, until one gets through; the seed is printed and replays."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.processes.harness import Stream, expected, kill_group, own_snapshots

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

KILLS = 30
FILES = 150
SHORTEST_SECONDS, LONGEST_SECONDS = 5.0, 14.0


def test_thirty_kills_at_random_moments_leave_every_row_once(tmp_path: Path) -> None:
    seed = int(os.environ.get("LAKESINK_SEED", random.SystemRandom().randrange(2**32)))
    print(f"LAKESINK_SEED={seed}")
    chance = random.Random(seed)
    stream = Stream(tmp_path)
    stream.add_files(0, FILES)

    kills = sum(killed_after(stream, chance.uniform(SHORTEST_SECONDS, LONGEST_SECONDS)) for _ in range(KILLS))
    progress = len(own_snapshots(stream.load()))
    assert stream.run() == 0, stream.log()[-5000:]

    print(f"kills={kills} batches_before_the_last_run={progress}")
    assert kills >= KILLS * 2 // 3, "most kills must find the driver alive"
    assert stream.rows() == expected(range(FILES))
    assert [batch for batch, _, _ in own_snapshots(stream.load())] == list(range(FILES))


def killed_after(stream: Stream, seconds: float) -> bool:
    """True if the driver was alive to be killed."""
    with stream.driver() as driver:
        try:
            driver.wait(seconds)
        except subprocess.TimeoutExpired:
            kill_group(driver)
            return True
        assert driver.returncode == 0, stream.log()[-5000:]
        return False
