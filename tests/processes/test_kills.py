"""A real driver, really killed at every point that matters; the restart leaves every row once."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table
from testkit.harness import (
    ROWS_PER_FILE,
    Stream,
    added_files,
    expected,
    own_snapshots,
)

pytestmark = pytest.mark.driver

LONG = pytest.mark.nightly
"""Several drivers to start, some each with a planner and a committer: minutes."""


@dataclass(frozen=True)
class Kill:
    """Where a driver dies, and what becomes of that batch when the next driver meets it."""

    failpoint: str
    batch: int
    outcome: str


EVERY_POINT = (
    Kill("before-prepared", 0, "committed"),
    Kill("after-prepared", 1, "recovered"),
    Kill("before-call", 2, "recovered"),
    Kill("after-call", 3, "committed"),
    Kill("after-commit", 4, "committed"),
    Kill("batch-start", 5, "committed"),
)
WORST_POINTS = (Kill("after-prepared", 0, "recovered"), Kill("after-call", 1, "committed"))


@pytest.mark.parametrize(
    ("adapter", "branch", "kills", "empty"),
    [
        pytest.param("stream", "main", EVERY_POINT, (), id="every-point-on-main", marks=LONG),
        pytest.param("stream", "audit", WORST_POINTS, (), id="worst-points-on-a-branch"),
        pytest.param("stream", "main", WORST_POINTS, (0, 1, 3), id="worst-points-in-empty-batches", marks=LONG),
        pytest.param("format", "main", EVERY_POINT, (), id="every-point-by-format", marks=LONG),
        pytest.param("format", "audit", WORST_POINTS, (0, 1, 3), id="empty-batches-on-a-branch-by-format", marks=LONG),
    ],
)
def test_driver_killed_again_and_again_leaves_every_row_once(
    tmp_path: Path, adapter: str, branch: str, kills: tuple[Kill, ...], empty: tuple[int, ...]
) -> None:
    first = 0
    stream = Stream(tmp_path, adapter=adapter, where=(f"file not in ({', '.join(map(str, empty))})",) if empty else ())
    if branch != "main":
        stream, first = forked(stream, branch), 1
    batches = max(len(kills) + 1, 4)
    stream.add_files(first, first + batches)

    prepared = [killed_at(stream, kill) for kill in kills]
    assert stream.run() == 0, stream.log()

    forked_files, streamed_files = set(range(first)), set(range(first, first + batches))
    assert stream.rows(branch) == expected(forked_files | (streamed_files - set(empty)))
    table = stream.load()
    marks = {batch: (outcome, snapshot) for batch, outcome, snapshot in own_snapshots(table, stream.sink_id)}
    assert list(marks) == list(range(batches))
    for kill, record in zip(kills, prepared, strict=True):
        outcome, snapshot = marks[kill.batch]
        assert outcome == kill.outcome, kill
        assert f"lakesink.batch.{told(kill, empty)} table=demo.numbers sink={stream.sink_id} " in stream.log()
        if outcome == "recovered":
            assert added_files(table, snapshot) == record.paths
            assert record.paths <= record.on_disk


def told(kill: Kill, empty: tuple[int, ...]) -> str:
    """What the next driver's one line says of the batch."""
    if kill.failpoint in ("after-call", "after-commit"):
        return "already-committed"
    return "empty" if kill.outcome == "committed" and kill.batch in empty else kill.outcome


@dataclass(frozen=True)
class Left:
    """What a killed driver left behind: the paths in its prepared record, and the data files that there were."""

    paths: set[str]
    on_disk: set[str]


def killed_at(stream: Stream, kill: Kill) -> Left:
    """The driver dies with all its processes, whichever of them has come to the point."""
    stream.killed_at(f"{kill.failpoint}@{kill.batch}")
    on_disk = {f"file://{path}" for path in stream.home.rglob("*.parquet")}
    return Left(prepared_paths(stream, kill.batch) if kill.outcome == "recovered" else set(), on_disk)


def prepared_record(stream: Stream, batch: int) -> dict[str, Any] | None:
    found = list(stream.home.rglob(f"lakesink/{stream.sink_id}/*/{batch}-*.json"))
    return json.loads(found[0].read_bytes().partition(b"\n")[2]) if found else None


def prepared_paths(stream: Stream, batch: int) -> set[str]:
    record = prepared_record(stream, batch)
    assert record is not None
    [payload] = record["participants"].values()
    return {path for path, _ in payload["files"]}


def forked(stream: Stream, branch: str) -> Stream:
    """A table with the rows of file 0, a branch forked off it, and a stream into that branch."""
    stream.home.mkdir()
    os.environ["LAKESINK_HOME"] = str(stream.home)
    rows = pa.table({"file": pa.array([0] * ROWS_PER_FILE, pa.int64()), "row": pa.array(range(ROWS_PER_FILE))})
    table = create_table(connect(), stream.table, rows.schema)
    table.append(rows)
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, branch).commit()
    return replace(stream, options={"branch": branch}, sink_id="numbers-audit", checkpoint_name="checkpoint-audit")


@pytest.mark.parametrize("adapter", ["stream", pytest.param("format", marks=LONG)])
def test_driver_killed_while_its_tasks_write_leaves_only_orphans(tmp_path: Path, adapter: str) -> None:
    stream = Stream(tmp_path, adapter=adapter)
    stream.add_files(0, 3)
    stream.killed_at("while-writing@1")
    assert prepared_record(stream, 1) is None
    assert stream.run() == 0, stream.log()

    assert stream.rows() == expected(range(3))


@pytest.mark.parametrize("adapter", ["stream", pytest.param("format", marks=LONG)])
@pytest.mark.parametrize("paused_at", ["before-call", pytest.param("after-call", marks=LONG)])
def test_two_drivers_on_one_checkpoint_write_every_row_once(tmp_path: Path, adapter: str, paused_at: str) -> None:
    stream = Stream(tmp_path, adapter=adapter)
    stream.add_files(0, 4)
    assert stream.overtaken_at(f"{paused_at}@2"), stream.log()
    assert stream.rows() == expected(range(4))
    assert [batch for batch, _, _ in own_snapshots(stream.load())] == list(range(4))
