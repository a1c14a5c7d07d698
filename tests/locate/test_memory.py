"""What locating a million changes needs in memory, measured in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.locate.memory import CHANGES, KEYS, Used, make

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
DRIVER_MIB, WORKER_MIB = 200, 150


def measured(role: str, folder: Path) -> Used:
    command = [sys.executable, "-m", "tests.locate.memory", role, str(folder)]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Used(*json.loads(result.stdout))


@pytest.mark.parametrize("kind", KEYS)
def test_a_million_changes_are_located_in_bounded_memory(tmp_path: Path, kind: str) -> None:
    make(tmp_path, kind)
    driver, worker = measured("driver", tmp_path), measured("worker", tmp_path)
    print(f"{kind}, above the start: driver {driver}, worker {worker}")
    assert driver.located == CHANGES // 2  # the first batch has removed the rows of the others
    assert worker.located == CHANGES
    assert driver.most_mib - driver.shared_mib < DRIVER_MIB  # the processes of a machine share the files of libraries
    assert worker.most_mib - worker.shared_mib < WORKER_MIB
