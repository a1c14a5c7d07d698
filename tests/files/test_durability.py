"""What a power failure must not undo is flushed: parts before the vote, the marker before the batch is committed."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes
from testkit.directory import Stream


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files and folders in the order in which they were flushed."""
    paths: list[Path] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return paths


def test_a_part_and_its_entry_in_the_folder_are_flushed_before_its_task_votes(
    tmp_path: Path, flushed: list[Path]
) -> None:
    stream = Stream(tmp_path / "new" / "out")
    sink = stream.sink()
    stream.run_with(sink, 0)
    flushed.clear()
    votes: list[list[Path]] = []

    def write(writers: Mapping[str, TaskWriter]) -> Votes:
        receipts = stream.write(stream.batch(1))(writers)
        votes.append(list(flushed))
        return receipts

    run_batch(stream.batch(1), [sink], write)
    part = next(path for path in stream.part_files() if path.name.startswith("clicks-1-"))
    assert votes == [[part, stream.root / "parts"]]
    marker_draft, commits = flushed[2:]
    assert marker_draft.name.startswith(f".{stream.marker_path(1).name}.")
    assert commits == stream.root / "commits"


def test_the_entries_of_folders_that_are_made_are_flushed_up_to_the_first_that_was_there(
    tmp_path: Path, flushed: list[Path]
) -> None:
    stream = Stream(tmp_path / "new" / "out")
    stream.run(0)
    made = [tmp_path, tmp_path / "new", stream.directory, stream.directory / "_lakesink", stream.root]
    assert set(made) <= set(flushed)
