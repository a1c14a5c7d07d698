"""Writes what `tests.upgrade.test_upgrade` goes on with: to be run before the version of ledger or records is raised.

``python -m tests.upgrade.write`` makes ``written-by-ledger-<n>-record-<n>.tar.xz`` of a table and its two checkpoints:
in both, batch 2 is the last. The driver of one died when that batch was committed, of the other when it was prepared.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from lakesink_catalog.commit.record import RECORD_VERSION
from lakesink_catalog.failpoints import VARIABLE
from lakesink_protocol.ledger import LEDGER_VERSION

HERE = Path(__file__).parent
DEATHS = {"committed": "after-commit@2=kill", "prepared": "after-prepared@2=kill"}
"""Where the driver of each sink dies."""


def drive(folder: Path, *sinks: str, failpoints: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a driver in a folder to its end, or its death."""
    environment = {**os.environ, VARIABLE: failpoints, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, str(HERE / "driver.py"), *sinks]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def write(archive: Path) -> None:
    """Run the drivers, and put what they leave into an archive."""
    with tempfile.TemporaryDirectory() as name:
        for _ in range(2):
            drive(Path(name), *DEATHS).check_returncode()
        for sink, death in DEATHS.items():
            assert drive(Path(name), sink, failpoints=death).returncode == -9
        with tarfile.open(archive, "w:xz") as packed:
            packed.add(name, ".", filter=_nobodys)


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    write(HERE / f"written-by-ledger-{LEDGER_VERSION}-record-{RECORD_VERSION}.tar.xz")
