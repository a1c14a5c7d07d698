"""The example's stream on real Spark: its driver is killed, and another process commits its transaction by id."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pravega_client", reason="python -m servers.fetch pravega-client; Python 3.11 on Linux only")

pytestmark = [pytest.mark.interop, pytest.mark.nightly]

EXAMPLE = Path(__file__).parents[3] / "examples" / "transactional_sinks" / "pravega"
SHOWN = (
    "   It ended with -9.",
    "   In the stream: 100 events, 100 orders.",
    "   In the stream: 300 events, 300 orders.",
    "3. Every order once: True.",
)


def test_a_killed_drivers_transaction_is_committed_by_the_next_driver(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAKESINK_")}
    command = [sys.executable, str(EXAMPLE / "run.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told, page = done.stdout.splitlines(), (EXAMPLE / "README.md").read_text().splitlines()
    for line in SHOWN:
        assert line in told
        assert line in page
    [recovered] = [line for line in told if "lakesink.batch.recovered" in line]
    assert "batch=1" in recovered
