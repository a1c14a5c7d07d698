"""The stream that users copy stops after its batch, by whatever way it is asked, and every row is in the table once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lakesink
from testkit.harness import PATIENCE_SECONDS

PROGRAM = Path(__file__).parents[2] / "examples" / "deploy" / "orders_stream.py"
ROWS = 50


def arrive(folder: Path, number: int) -> None:
    inbox = folder / "inbox"
    inbox.mkdir(exist_ok=True)
    rows = [{"id": ROWS * number + row, "amount": 0.5, "at": "2026-01-31T12:00:00Z"} for row in range(ROWS)]
    staged = folder / f"{number}.staged"
    staged.write_text("\n".join(json.dumps(row) for row in rows))
    staged.rename(inbox / f"{number}.json")


@contextmanager
def stream(folder: Path, *options: str, failpoints: str = "") -> Iterator["subprocess.Popen[str]"]:
    call = [sys.executable, str(PROGRAM), "--inbox", str(folder / "inbox"), "--checkpoint", str(folder / "checkpoint")]
    environment = os.environ | {"LAKESINK_FAILPOINTS": failpoints, "PYSPARK_PYTHON": sys.executable}
    with (folder / "stream.log").open("a") as log:
        process = subprocess.Popen(
            [*call, "--every", "1 second", *options],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def wait_for(what: Callable[[], bool], process: "subprocess.Popen[str]", folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert process.poll() is None, (folder / "stream.log").read_text()[-3000:]
        assert time.monotonic() < deadline, (folder / "stream.log").read_text()[-3000:]
        time.sleep(0.1)


def ended_well(process: "subprocess.Popen[str]", folder: Path) -> None:
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, (folder / "stream.log").read_text()[-3000:]
    assert said.splitlines()[-1] == "stopped"


def batches() -> list[tuple[int, int, str]]:
    return [(batch.batch_id, batch.rows, batch.outcome) for batch in lakesink.history("shop.orders")]


@pytest.mark.page("examples/deploy")
@pytest.mark.usefixtures("home")
def test_every_way_to_stop_ends_well_and_every_row_is_there_once(tmp_path: Path) -> None:
    arrive(tmp_path, 0)
    with stream(tmp_path, "--available-now") as job:
        ended_well(job, tmp_path)
    assert batches() == [(0, ROWS, "committed")]

    paused, stop_file = tmp_path / "paused", tmp_path / "stop"
    arrive(tmp_path, 1)
    with stream(tmp_path, failpoints=f"before-prepared@1=pause:{paused}") as service:
        wait_for(paused.exists, service, tmp_path)
        service.send_signal(signal.SIGTERM)
        time.sleep(2)  # the batch is still at work: whoever stops it now interrupts it
        assert service.poll() is None
        paused.unlink()
        ended_well(service, tmp_path)
    assert batches()[1:] == [(1, ROWS, "committed")], "the batch that ran when SIGTERM came"

    arrive(tmp_path, 2)
    with stream(tmp_path, "--stop-file", str(stop_file)) as service:
        wait_for(lambda: len(batches()) == 3, service, tmp_path)
        stop_file.touch()
        ended_well(service, tmp_path)
    assert batches()[2:] == [(2, ROWS, "committed")]


@pytest.mark.page("examples/deploy")
@pytest.mark.usefixtures("home")
def test_an_error_of_the_stream_ends_with_an_exit_code_that_restarts_it(tmp_path: Path) -> None:
    arrive(tmp_path, 0)
    with stream(tmp_path, failpoints="before-prepared=raise") as service:
        assert service.wait(PATIENCE_SECONDS) == 1
    assert "lakesink.batch.failed" in (tmp_path / "stream.log").read_text()
