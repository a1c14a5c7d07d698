"""A real driver that streams into a directory, really killed; the restart leaves every row once."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

import lakesink
from testkit.harness import Stream, expected
from tests.processes.test_kills import Kill

pytestmark = pytest.mark.driver


@dataclass(frozen=True)
class FileStream(Stream):
    """The same numbered files into a directory."""

    adapter: str = "files"

    @property
    def directory(self) -> Path:
        return self.root / "out"

    @property
    def sink_folder(self) -> Path:
        return self.directory / "_lakesink" / self.sink_id

    def config(self) -> dict[str, Any]:
        return {**super().config(), "table": str(self.directory)}

    def committed(self) -> Counter[tuple[int, int]]:
        """Every committed row with its multiplicity."""
        if not self.sink_folder.exists():
            return Counter()
        paths = lakesink.committed_files(self.directory)
        assert len(paths) == len(set(paths))
        if not paths:
            return Counter()
        return Counter(duckdb.read_parquet(paths).project("file, row").fetchall())

    def markers(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in sorted((self.sink_folder / "commits").glob("*.json"))]


def file_stream(root: Path, **fields: Any) -> FileStream:
    return FileStream(root, **{"options": {}, **fields})


EVERY_POINT = (
    Kill("while-writing", 0, "committed"),
    Kill("after-prepared", 1, "recovered"),
    Kill("before-call", 2, "recovered"),
    Kill("after-call", 3, "committed"),
)
LONG = pytest.mark.nightly
WORST_POINTS = (Kill("after-prepared", 0, "recovered"), Kill("after-call", 1, "committed"))


@pytest.mark.parametrize(
    ("kills", "empty"),
    [
        pytest.param(EVERY_POINT, (), id="every-point", marks=LONG),
        pytest.param(WORST_POINTS, (0, 1, 3), id="worst-points-in-empty-batches", marks=LONG),
    ],
)
def test_driver_killed_again_and_again_leaves_every_row_once(
    tmp_path: Path, kills: tuple[Kill, ...], empty: tuple[int, ...]
) -> None:
    where = (f"file not in ({', '.join(map(str, empty))})",) if empty else ()
    stream = file_stream(tmp_path, where=where)
    batches = max(len(kills) + 1, 4)
    stream.add_files(0, batches)

    parts = [killed_at(stream, kill) for kill in kills]
    assert stream.run() == 0, stream.log()

    assert stream.committed() == expected(set(range(batches)) - set(empty))
    markers = stream.markers()
    assert [marker["batch_id"] for marker in markers] == list(range(batches))
    for kill, before in zip(kills, parts, strict=True):
        marker = markers[kill.batch]
        assert marker["outcome"] == kill.outcome, kill
        if kill.outcome == "recovered":
            assert {part["path"] for part in marker["parts"]} <= before


def killed_at(stream: FileStream, kill: Kill) -> set[str]:
    """The driver dies with all its processes; what it left of parts, by path in the directory."""
    stream.killed_at(f"{kill.failpoint}@{kill.batch}")
    assert not stream.committed() - expected(range(kill.batch + (kill.failpoint == "after-call")))
    return {str(path.relative_to(stream.directory)) for path in stream.sink_folder.glob("parts/*")}


def test_two_drivers_on_one_checkpoint_write_every_row_once(tmp_path: Path) -> None:
    stream = file_stream(tmp_path)
    stream.add_files(0, 4)
    assert stream.overtaken_at("before-call@2"), stream.log()
    assert stream.committed() == expected(range(4))
    assert [marker["batch_id"] for marker in stream.markers()] == list(range(4))
