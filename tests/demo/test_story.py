"""The demo, whole: real drivers really killed, its claims, the commands it prints, and how it ends early."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DEMO = (str(Path(sys.executable).with_name("lakesink")), "demo")
WHOLE = pytest.mark.nightly
"""CI runs the demo once, with its own rows; see scripts/demo.sh."""
FEW = ("--rows", "3500")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The ending of one demo, told in a folder of its own, with the user's own catalogs out of sight."""
    folder = tmp_path_factory.mktemp("told")
    done = subprocess.run(
        [*DEMO, *FEW, "--output", "json"], cwd=folder, env=outside(folder), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ending: dict[str, Any] = json.loads(done.stdout)
    return ending


@WHOLE
def test_a_driver_killed_twice_writes_every_flight_once(told: dict[str, Any]) -> None:
    assert told["proved"] is True
    assert (told["rows"], told["batches"]) == (3500, 4)
    assert (told["drivers"], told["killed"], told["recovered"], told["skipped"]) == (3, 2, 1, 1)
    assert told["orphan_files"] == 0
    assert all(check["expected"] == check["found"] for check in told["checks"])


@WHOLE
def test_the_killed_drivers_leave_their_log_in_the_folder(told: dict[str, Any]) -> None:
    log = (Path(told["folder"]) / "drivers.log").read_text()

    assert log.count("lakesink.batch.recovered") == 1
    assert log.count("lakesink.batch.already-committed") == 1
    assert log.count("lakesink.batch.committed") == told["batches"] - 2  # one is recovered, one's line died unsaid


@WHOLE
@pytest.mark.parametrize("position", range(4), ids=["log", "status", "duckdb", "duckdb-as-of"])
def test_what_to_try_next_works_as_printed(told: dict[str, Any], position: int) -> None:
    step = told["next"][position]
    assert step["online"] is False

    folder = Path(told["folder"]).parent
    done = subprocess.run(  # noqa: S602 - printed for a shell
        step["command"],
        shell=True,
        cwd=folder,
        env=outside(folder),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "flights" in done.stdout


@WHOLE
def test_without_kills_one_driver_tells_it_all_in_text(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--rows", "1000", "--no-kill", "--dir", "here"],
        cwd=tmp_path,
        env=outside(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1,000 flights in 2 batches by 1 driver, 0 of them killed" in done.stdout
    assert "Every claim holds." in done.stdout
    assert "SIGKILL" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr, "no bar where there is no terminal"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Programs that a test starts heed Ctrl-C, also if the tests run in the background of a shell, where none does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@WHOLE
@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_demo_leaves_no_process_behind(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [*DEMO, "--rows", "3500"],
        cwd=tmp_path,
        env=outside(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = tmp_path / "lakesink-demo" / "drivers.log"
    wait_until(lambda: bool(processes_of(tmp_path)) and log.exists() and "lakesink.batch" in log.read_text())

    demo.send_signal(signal.SIGINT)
    told = demo.communicate(timeout=500)

    assert demo.returncode == 1, told
    wait_until(lambda: not processes_of(tmp_path))


def test_a_folder_with_anything_else_in_it_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")

    done = subprocess.run(
        [*DEMO, "--dir", str(tmp_path)], env=outside(tmp_path), capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "LAKESINK_DEMO_FOLDER" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def outside(folder: Path) -> dict[str, str]:
    """An environment without the user's own configuration of PyIceberg and lakesink."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("LAKESINK_", "PYICEBERG_"))} | {
        "PYICEBERG_HOME": str(folder),
        "HOME": str(folder),
    }


def processes_of(folder: Path) -> list[int]:
    """Drivers and JVMs whose command line names the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:  # it ended meanwhile
                continue
            if str(folder).encode() in command:
                found.append(int(entry.name))
    return found


def wait_until(happened: Any, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
