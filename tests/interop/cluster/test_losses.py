"""An executor or a worker is lost in the middle of a batch, or a task is run twice: every row is there once."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lakesink_catalog.failpoints import VARIABLE
from lakesink_tools.cli.run.pack import FOLDER
from testkit.harness import PATIENCE_SECONDS, added_files, expected, own_snapshots, wait_for
from tests.interop.cluster.ground import (
    CATALOG,
    TASKS,
    ClusterStream,
    FilesOnCluster,
    Ground,
    in_executors,
    kill,
    let_go,
    paused,
)
from tests.interop.cluster.pythons import NAMED, Pythons

pytestmark = pytest.mark.interop

BATCHES = 3
STRUCK = 1
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "3s",  # none but the straggler takes as long
}


@pytest.mark.parametrize("adapter", ["stream", pytest.param("format", marks=pytest.mark.nightly), "files"])
def test_an_executor_killed_in_the_middle_of_a_batch(
    ground: Ground, pythons: Pythons, root: Path, adapter: str
) -> None:
    stream = told(ground, pythons, root / adapter, adapter)
    window = root / "window"
    with stream.driver() as driver:
        wait_for(window, driver)
        assert kill(ground.cluster.executors()[:1]) == 1
        assert let_go(window, driver) == 0, stream.log()
    assert stream.rows() == expected(range(BATCHES))
    assert "ExecutorLostFailure" in {attempt["Reason"] for attempt in stream.attempts()}


def told(ground: Ground, pythons: Pythons, root: Path, adapter: str) -> ClusterStream:
    """A stream whose second batch waits at the window; lakesink comes in an archive, or is installed."""
    conf = in_executors(paused(root.with_name("window")))
    if adapter == "format":
        stream = ground.stream(root, conf | archived(pythons.archive), environment=NAMED, adapter=adapter)
    elif adapter == "files":
        stream = ground.stream(root, conf, FilesOnCluster, environment=installed(pythons), options={})
    else:
        stream = ground.stream(root, conf, environment=installed(pythons))
    stream.add_files(0, BATCHES)
    return stream


def archived(archive: Path) -> dict[str, str]:
    return {"spark.archives": f"{archive}#{FOLDER}", "spark.executorEnv.PYTHONPATH": FOLDER}


def installed(pythons: Pythons) -> dict[str, str]:
    return {"PYSPARK_PYTHON": str(pythons.released)}


def test_a_worker_lost_in_the_middle_of_a_batch(ground: Ground, pythons: Pythons, root: Path) -> None:
    stream = told(ground, pythons, root / "stream", "stream")
    window = root / "window"
    with replaced_after(ground, 0), stream.driver() as driver:
        wait_for(window, driver)
        assert ground.cluster.executors_of(0)
        ground.cluster.kill_worker(0)
        assert let_go(window, driver) == 0, stream.log()
    assert stream.rows() == expected(range(BATCHES))
    assert [batch for batch, _, _ in own_snapshots(stream.load())] == list(range(BATCHES))
    assert "ExecutorLostFailure" in {attempt["Reason"] for attempt in stream.attempts()}


@contextmanager
def replaced_after(ground: Ground, number: int) -> Iterator[None]:
    """Whatever becomes of a worker in the block, the next test finds a new one in its place."""
    try:
        yield
    finally:
        ground.cluster.replace_worker(number)


def test_of_a_straggler_and_its_twin_one_is_in_the_table(ground: Ground, pythons: Pythons, root: Path) -> None:
    """The twin's file is whole before the straggler may go on, which closes its own too. One is in no snapshot."""
    stream = ground.stream(root / "stream", SPECULATION, environment=installed(pythons))
    stream.add_files(0, BATCHES)
    window = root / "window"
    with replaced_after(ground, 0):
        ground.cluster.replace_worker(0, {VARIABLE: paused(window, f"while-writing@{STRUCK}")})
        with stream.driver() as driver:
            wait_for(window, driver)
            wait_for_files(stream, TASKS * (STRUCK + 1))
            window.unlink()
            assert driver.wait(PATIENCE_SECONDS) == 0, stream.log()

    assert ({"Success", "TaskKilled"}, True) in [
        ({twin["Reason"], straggler["Reason"]}, twin["Host"] != straggler["Host"]) for twin, straggler in pairs(stream)
    ]
    assert stream.rows() == expected(range(BATCHES))
    table = stream.load()
    batches = {batch: snapshot for batch, _, snapshot in own_snapshots(table)}
    assert {batch: len(added_files(table, snapshot)) for batch, snapshot in batches.items()} == {0: 4, 1: 4, 2: 4}
    left = stream.stored() - stream.referenced()
    assert left, "one of the two was killed before it closed its file"
    [found] = [note["found"] for note in audited(stream)["notes"] if note["name"] == "orphans"]
    assert found.startswith(f"{len(left)} file")


def wait_for_files(stream: ClusterStream, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(stream.stored()) < count:
        assert time.monotonic() < deadline, f"{len(stream.stored())} files instead of {count}"
        time.sleep(0.02)


def pairs(stream: ClusterStream) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Every speculative attempt with the one that it was to overtake."""
    attempts = stream.attempts()
    return [
        (twin, other)
        for twin in attempts
        for other in attempts
        if twin["Speculative"]
        and not other["Speculative"]
        and (twin["Stage"], twin["Index"]) == (other["Stage"], other["Index"])
    ]


def audited(stream: ClusterStream) -> dict[str, Any]:
    call = [
        str(Path(sys.executable).with_name("lakesink")),
        "audit",
        stream.table,
        "--catalog",
        CATALOG,
        "--output",
        "json",
    ]
    answer: dict[str, Any] = json.loads(subprocess.run(call, check=True, capture_output=True).stdout)
    return answer
