"""A checkpoint taken back: what is removed, what is kept, and when it is refused."""

import json
from pathlib import Path
from typing import Any

import fsspec
import pytest
from click.testing import CliRunner, Result

from lakesink_protocol.errors import QueryError
from lakesink_tools.cli.main import main
from lakesink_tools.operate.rewind import RewindableCheckpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """As Spark leaves it in the middle of batch 5, with entries below 1 purged."""
    root = tmp_path / "ck"
    for log, last in (("offsets", 5), ("commits", 4)):
        (root / log).mkdir(parents=True)
        for batch_id in range(1, last + 1):
            (root / log / str(batch_id)).write_text(f"{log} {batch_id}")
            (root / log / f".{batch_id}.crc").write_bytes(b"crc")
    (root / "metadata").write_text('{"id":"q"}')
    (root / "sources" / "0").mkdir(parents=True)
    (root / "sources" / "0" / "5").write_text("v1")
    return root


def rewind(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["rewind", *map(str, arguments), "--output", "json"], catch_exceptions=False)


def take_back(checkpoint: Path, backup: Path) -> None:
    place = RewindableCheckpoint(str(checkpoint))
    place.rewind(place.plan(2), str(backup))


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def batches(root: Path, log: str) -> list[int]:
    return sorted(int(path.name) for path in (root / log).iterdir() if path.name.isdecimal())


def test_entries_above_the_batch_go_and_are_copied_first(checkpoint: Path) -> None:
    before = files(checkpoint)
    result = rewind(checkpoint, "--to-batch", 2, "--yes")
    document = json.loads(result.stdout)
    assert document["removed"] == [3, 4, 5]
    assert batches(checkpoint, "offsets") == batches(checkpoint, "commits") == [1, 2]
    assert set(before) - set(files(checkpoint)) == {
        f"{log}/{name}"
        for log, last in (("offsets", 5), ("commits", 4))
        for batch_id in range(3, last + 1)
        for name in (str(batch_id), f".{batch_id}.crc")
    }
    copied = files(Path(document["backup"]))
    assert copied == {path: content for path, content in before.items() if not path.startswith("sources/")}


def test_a_second_run_has_nothing_to_do(checkpoint: Path) -> None:
    rewind(checkpoint, "--to-batch", 2, "--yes")
    left = files(checkpoint)
    result = rewind(checkpoint, "--to-batch", 2, "--yes")
    assert (result.exit_code, json.loads(result.stdout)["backup"]) == (0, None)
    assert files(checkpoint) == left


@pytest.mark.parametrize("removals", range(16))
def test_cut_short_anywhere_it_leaves_a_checkpoint_as_spark_does_and_can_be_run_again(
    checkpoint: Path, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removals: int
) -> None:
    system = type(fsspec.filesystem("file"))
    remove = system.rm_file
    done: list[str] = []

    def cut(self: Any, path: str) -> None:
        if len(done) == removals:
            raise KeyboardInterrupt
        done.append(path)
        remove(self, path)

    with monkeypatch.context() as patched:
        patched.setattr(system, "rm_file", cut)
        with pytest.raises(KeyboardInterrupt):
            take_back(checkpoint, tmp_path / "first")
    planned, committed = batches(checkpoint, "offsets"), batches(checkpoint, "commits")
    assert planned[-1] - committed[-1] in (0, 1)
    assert [planned, committed] == [list(range(1, planned[-1] + 1)), list(range(1, committed[-1] + 1))]
    assert planned[-1] == 5 or not LATER & set(files(state)), "logs go only after the state"
    take_back(checkpoint, tmp_path / "second")
    assert batches(checkpoint, "offsets") == batches(checkpoint, "commits") == [1, 2]
    assert {name for name in files(state) if not name.startswith(".")} == set(STATE) - LATER


@pytest.mark.parametrize(("to_batch", "told"), [(6, "newest batch is 5"), (0, "no longer has the offsets of batch 0")])
def test_a_batch_that_the_checkpoint_does_not_have_is_refused(checkpoint: Path, to_batch: int, told: str) -> None:
    before = files(checkpoint)
    result = rewind(checkpoint, "--to-batch", to_batch, "--yes")
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "LAKESINK_REWIND_REFUSED"
    assert told in error["what"]
    assert files(checkpoint) == before


LATER = {"4.delta", ".4.delta.crc", "4.delta.crc", "4.snapshot", "5_8d7a.zip", "6.changelog"}
STATE = ("_metadata", "2.delta", "2.delta.crc", "3.delta", "3.delta.crc", *LATER)


@pytest.fixture
def state(checkpoint: Path) -> Path:
    """What batch n leaves is of version n+1."""
    folder = checkpoint / "state" / "0" / "1" / "left-keyToNumValues"
    folder.mkdir(parents=True)
    for name in STATE:
        (folder / name).write_text(name)
    return folder


def test_state_of_later_batches_goes_too_and_is_copied(checkpoint: Path, state: Path) -> None:
    document = json.loads(rewind(checkpoint, "--to-batch", 2, "--yes").stdout)
    assert set(files(state)) == set(STATE) - LATER
    copied = files(Path(document["backup"]) / state.relative_to(checkpoint))
    assert copied == {name: name.encode() for name in LATER if not name.startswith(".")}


def test_state_that_was_left_behind_by_hand_goes_as_well(checkpoint: Path, state: Path) -> None:
    for log in ("offsets", "commits"):
        for batch_id in range(3, 6):
            (checkpoint / log / str(batch_id)).unlink(missing_ok=True)
    assert json.loads(rewind(checkpoint, "--to-batch", 2, "--yes").stdout)["files"] == 5
    assert set(files(state)) == set(STATE) - LATER


def test_a_query_without_a_batch_has_no_state(checkpoint: Path, state: Path) -> None:
    rewind(checkpoint, "--to-batch", -1, "--yes")
    assert set(files(state)) == {"_metadata"}
    assert batches(checkpoint, "offsets") == []


def test_a_query_that_keeps_state_goes_back_only_to_state_that_is_there(checkpoint: Path, state: Path) -> None:
    (state / "2.delta").unlink()
    before = files(checkpoint)
    refused = json.loads(rewind(checkpoint, "--to-batch", 1, "--yes").stdout)
    assert "state as of batch 1" in refused["error"]["what"]
    assert files(checkpoint) == before


@pytest.mark.parametrize("written", ["offsets/6", "commits/5", "state/0/1/left-keyToNumValues/7.delta"])
def test_a_query_that_turns_out_to_run_is_left_alone(
    checkpoint: Path, state: Path, tmp_path: Path, written: str
) -> None:
    assert state.is_dir()
    place = RewindableCheckpoint(str(checkpoint))
    plan = place.plan(2)
    (checkpoint / written).write_text("meanwhile")
    before = files(checkpoint)
    with pytest.raises(QueryError, match="is running"):
        place.rewind(plan, str(tmp_path / "copy"))
    assert files(checkpoint) == before


def test_nothing_happens_without_a_yes(checkpoint: Path) -> None:
    before = files(checkpoint)
    result = rewind(checkpoint, "--to-batch", 2)
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (2, "LAKESINK_NOT_CONFIRMED")
    assert files(checkpoint) == before


def test_a_backup_overwrites_nothing(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    before = files(checkpoint)
    result = rewind(checkpoint, "--to-batch", 2, "--yes", "--backup", tmp_path / "taken")
    assert "exists already" in json.loads(result.stdout)["error"]["what"]
    assert files(checkpoint) == before


@pytest.mark.parametrize("made", [[], ["offsets", "commits"]])
def test_a_folder_that_is_no_checkpoint_is_left_alone(tmp_path: Path, made: list[str]) -> None:
    for name in made:
        (tmp_path / name).mkdir()
    result = rewind(tmp_path, "--to-batch", 0, "--yes")
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (2, "LAKESINK_REWIND_REFUSED")


def test_a_checkpoint_may_be_anywhere_that_fsspec_knows() -> None:
    system = fsspec.filesystem("memory")
    for path in ("metadata", "offsets/0", "offsets/1", "commits/0"):
        system.pipe_file(f"/rewound/{path}", b"{}")
    assert json.loads(rewind("memory://rewound", "--to-batch", 0, "--yes").stdout)["removed"] == [1]
    assert not system.exists("/rewound/offsets/1")
