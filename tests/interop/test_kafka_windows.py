"""The example with its real broker: it and the driver are killed, and every record and every window is there once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.harness import PATIENCE_SECONDS

pytestmark = pytest.mark.interop
ROOT = Path(__file__).parents[2]
FEW = ("--days", "5", "--driver-kills", "1", "--broker-kills", "1", "--seed", "3")


def test_windows_equal_a_batch_computation_though_driver_and_broker_were_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.kafka_windows", *FEW, "--dir", str(tmp_path / "demo"), "--output", "json"],
        cwd=ROOT,
        env=os.environ | {"PYICEBERG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["proved"] is True
    assert sorted(told["killed"]) == ["broker", "driver"]
    assert told["aborted"] == 303
    assert all(check["expected"] == check["found"] for check in told["checks"])
