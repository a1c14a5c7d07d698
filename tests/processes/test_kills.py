"""A real driver, really killed at every point that matters; the restart leaves every row once."""

import json
import signal
from pathlib import Path

import pytest

from tests.processes.harness import (
    Stream,
    added_files,
    data_files_on_disk,
    expected,
    kill_group,
    own_snapshots,
    signal_group,
    wait_for,
)

FILES = 4
KILLED = -9
BATCH = 2


def prepared_record(stream: Stream, batch_id: int) -> dict[str, object] | None:
    found = list(stream.home.rglob(f"lakesink/{stream.sink_id}/*/{batch_id}-*.json"))
    if not found:
        return None
    body: dict[str, object] = json.loads(found[0].read_bytes().partition(b"\n")[2])
    return body


def paths_in(record: dict[str, object] | None) -> set[str]:
    assert record is not None
    [payload] = record["participants"].values()  # type: ignore[attr-defined] # JSON
    return {path for path, _ in payload["files"]}


@pytest.mark.parametrize(
    ("failpoint", "outcome"),
    [
        ("before-prepared", "committed"),
        ("after-prepared", "recovered"),
        ("before-call", "recovered"),
        ("after-call", "committed"),
        ("after-commit", "committed"),
    ],
)
@pytest.mark.parametrize("branch", ["main", "audit"])
def test_driver_killed_inside_a_batch_leaves_every_row_once(
    tmp_path: Path, failpoint: str, outcome: str, branch: str
) -> None:
    stream = Stream(tmp_path)
    if branch != "main":
        stream = on_branch(stream, branch)
    stream.add_files(0 if branch == "main" else 1, FILES)
    batch = BATCH if branch == "main" else BATCH - 1

    assert stream.run(f"{failpoint}@{batch}=kill") == KILLED
    before = data_files_on_disk(stream)
    prepared = paths_in(prepared_record(stream, batch)) if outcome == "recovered" else None
    assert stream.run() == 0, stream.log()

    assert stream.rows(branch) == expected(FILES)
    table = stream.load()
    marks = {batch_id: (how, snapshot) for batch_id, how, snapshot in own_snapshots(table) if batch_id == batch}
    assert marks[batch][0] == outcome
    if prepared is not None:
        assert added_files(table, marks[batch][1]) == prepared
        assert {path.removeprefix("file://") for path in prepared} <= before


def on_branch(stream: Stream, branch: str) -> Stream:
    """The table made by a first stream on main, then a branch forked off, and a stream of another sink into it."""
    stream.add_files(0, 1)
    assert stream.run() == 0, stream.log()
    table = stream.load()
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, branch).commit()
    (stream.root / "source" / "000000.json").unlink()
    return Stream(
        stream.root,
        options={"branch": branch},
        sink_id="numbers-audit",
        checkpoint_name="checkpoint-audit",
    )


def test_driver_killed_after_sparks_own_commit_log_goes_on_with_the_next_batch(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.add_files(0, FILES)

    assert stream.run(f"batch-start@{BATCH}=kill") == KILLED
    assert stream.run() == 0, stream.log()

    assert stream.rows() == expected(FILES)
    assert [(batch, outcome) for batch, outcome, _ in own_snapshots(stream.load())] == [
        (batch, "committed") for batch in range(FILES)
    ]


def test_driver_killed_while_its_tasks_write_leaves_only_orphans(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.add_files(0, FILES)
    window = tmp_path / "writing"

    with stream.driver(f"while-writing@{BATCH}=pause:{window}") as driver:
        wait_for(window, driver)
        kill_group(driver)
    window.unlink()
    assert prepared_record(stream, BATCH) is None
    assert stream.run() == 0, stream.log()

    assert stream.rows() == expected(FILES)


def test_empty_batches_with_kills_are_committed_once_each(tmp_path: Path) -> None:
    stream = Stream(tmp_path, where=("file not in (0, 2, 3)",))
    stream.add_files(0, FILES)

    assert stream.run("after-call@0=kill") == KILLED
    assert stream.run("after-prepared@2=kill") == KILLED
    assert stream.run("after-call@3=kill") == KILLED
    assert stream.run() == 0, stream.log()

    assert {number for number, _ in stream.rows()} == {1}
    assert [batch for batch, _, _ in own_snapshots(stream.load())] == list(range(FILES))


@pytest.mark.parametrize("paused_at", ["before-call", "after-call", "after-prepared"])
def test_two_drivers_on_one_checkpoint_write_every_row_once(tmp_path: Path, paused_at: str) -> None:
    stream = Stream(tmp_path)
    stream.add_files(0, FILES)
    window = tmp_path / "paused"

    with stream.driver(f"{paused_at}@{BATCH}=pause:{window}") as zombie:
        wait_for(window, zombie)
        signal_group(zombie, signal.SIGSTOP)
        assert stream.run() == 0, stream.log()
        window.unlink()
        signal_group(zombie, signal.SIGCONT)
        zombie.wait(120)
        loser = zombie.returncode

    assert stream.rows() == expected(FILES)
    assert [batch for batch, _, _ in own_snapshots(stream.load())] == list(range(FILES))
    assert loser == 0 or ended_by_name(stream.log()), stream.log()


def ended_by_name(log: str) -> bool:
    """The loser ended with lakesink's own error, or with Spark's about a concurrent writer of its log."""
    return "[LAKESINK_" in log or "CONCURRENT_STREAM_LOG_UPDATE" in log or "ConcurrentModificationException" in log
