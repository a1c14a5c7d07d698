"""Writes what `tests.upgrade.test_upgrade` goes on with: to be run before the version of a stored form is raised.

``python -m tests.upgrade.write`` makes ``table-ledger-<n>-record-<n>.tar.xz`` of a table and its two checkpoints: in
both, batch 2 is the last. The driver of one died when that batch was committed, of the other when it was prepared.
``directory-marker-<n>-record-<n>.tar.xz`` is a directory of batches 0 to 2; the driver of batch 3 prepared it and died.
"""

import contextlib
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from lakesink.sinks.directory.marker import MARKER_VERSION
from lakesink_catalog.commit.record import RECORD_VERSION
from lakesink_catalog.failpoints import VARIABLE, FailpointReached
from lakesink_protocol.ledger import LEDGER_VERSION
from testkit.directory import Stream

HERE = Path(__file__).parent
DEATHS = {"committed": "after-commit@2=kill", "prepared": "after-prepared@2=kill"}
"""Where the driver of each sink dies."""


def drive(folder: Path, *sinks: str, failpoints: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a driver in a folder to its end, or its death."""
    environment = {**os.environ, VARIABLE: failpoints, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, str(HERE / "driver.py"), *sinks]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def write_table(folder: Path) -> None:
    """Run the drivers of two streams until they die."""
    for _ in range(2):
        drive(folder, *DEATHS).check_returncode()
    for sink, death in DEATHS.items():
        assert drive(folder, sink, failpoints=death).returncode == -9


def write_directory(folder: Path) -> None:
    """Run the batches of a stream of files, and prepare another one of two tasks."""
    stream = Stream(folder / "out")
    for number in range(3):
        stream.run(number)
    os.environ[VARIABLE] = "after-prepared@3=raise"
    with contextlib.suppress(FailpointReached):
        stream.run(3, tasks=2)


def pack(name: str, write: Callable[[Path], None]) -> None:
    """Put what is written into an archive."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        with tarfile.open(HERE / f"{name}-record-{RECORD_VERSION}.tar.xz", "w:xz") as packed:
            packed.add(folder, ".", filter=_nobodys)


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    pack(f"table-ledger-{LEDGER_VERSION}", write_table)
    pack(f"directory-marker-{MARKER_VERSION}", write_directory)
