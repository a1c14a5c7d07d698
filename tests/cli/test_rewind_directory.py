"""A directory taken back with its checkpoint: what readers see then, and that nothing of the old batches comes back."""

import json
from pathlib import Path
from typing import Any

import pytest

import lakesink
from lakesink.sinks.storage import LocalStorage
from lakesink_catalog.failpoints import VARIABLE, FailpointReached
from lakesink_protocol.errors import QueryError
from lakesink_protocol.outcome import Committed
from lakesink_tools.operate.rewind_directory import RewindableDirectory
from testkit.builders import expected
from testkit.directory import Stream
from tests.cli.test_rewind import files, rewind


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Batches 0 to 4, each by a driver of its own, so that the record of each is still there."""
    stream = Stream(tmp_path / "out")
    for number in range(5):
        stream.run(number)
    return stream


def checkpoint_of(stream: Stream, last: int = 4) -> Path:
    """As Spark leaves it after a batch."""
    root = stream.directory.parent / f"ck-{stream.query}"
    for log in ("offsets", "commits"):
        (root / log).mkdir(parents=True)
        for batch_id in range(last + 1):
            (root / log / str(batch_id)).write_text(f"v1\n{{}}\n[{batch_id + 1}]")
    (root / "metadata").write_text(json.dumps({"id": stream.query}))
    return root


def take_back(stream: Stream, to_batch: int, *more: Any) -> dict[str, Any]:
    result = rewind(checkpoint_of(stream), "--to-batch", to_batch, "--directory", stream.directory, "--yes", *more)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("to_batch", [-1, 0, 3, 4])
def test_readers_see_what_the_batch_left_and_the_stream_writes_the_later_ones_anew(
    stream: Stream, to_batch: int
) -> None:
    before, parts = stream.markers(), stream.part_files()
    document = take_back(stream, to_batch)
    kept = range(to_batch + 1)
    assert (document["directory"]["commits_kept"], document["directory"]["commits_taken_back"]) == (
        len(kept),
        5 - len(kept),
    )
    assert document["directory"]["rows_taken_back"] == 3 * (5 - len(kept))
    assert stream.counted() == expected(*kept)
    assert stream.markers() == before[: len(kept)]
    assert stream.part_files() == parts
    for number in range(to_batch + 1, 6):
        outcome = stream.run(number, rows=7)
        assert isinstance(outcome, Committed)
        assert not outcome.recovered
    assert stream.counted() == expected(*kept) + expected(*range(to_batch + 1, 6), rows=7)


def test_markers_and_records_are_moved_aside_and_moving_them_back_undoes_it(stream: Stream) -> None:
    before = files(stream.root)
    document = take_back(stream, 1)
    aside = Path(document["directory"]["moved_to"])
    moved = files(aside)
    assert {name for name in moved if name.startswith("commits/")} == {
        f"commits/{number:020d}.json" for number in (2, 3, 4)
    }
    assert moved.items() <= before.items()
    assert not list((stream.root / "prepared").iterdir())
    for name in moved:
        (aside / name).rename(stream.root / name)
    assert stream.counted() == expected(0, 1, 2, 3, 4)
    assert isinstance(stream.run(5), Committed)


def test_a_record_of_a_batch_that_was_taken_back_is_never_published(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A corrected query gives other rows; the batch has the same offsets, and follows the same marker as before."""
    take_back(stream, 3)
    monkeypatch.setenv(VARIABLE, "before-prepared@4=raise")
    with pytest.raises(FailpointReached):
        stream.run(4, rows=7)
    monkeypatch.delenv(VARIABLE)
    assert isinstance(stream.run(4, rows=7), Committed)
    assert stream.counted() == expected(0, 1, 2, 3) + expected(4, rows=7)


def test_the_checkpoint_goes_back_too(stream: Stream) -> None:
    document = take_back(stream, 2)
    assert document["removed"] == [3, 4]
    root = stream.directory.parent / "ck-query-1"
    assert sorted(path.name for path in (root / "offsets").iterdir()) == ["0", "1", "2"]
    again = rewind(root, "--to-batch", 2, "--directory", stream.directory)
    assert (again.exit_code, json.loads(again.stdout)["directory"]["moved_to"]) == (0, None)


def test_a_batch_is_looked_for_by_the_checkpoints_own_query(stream: Stream) -> None:
    """A new checkpoint took over where the first ended: its batches count from 0 again."""
    later = Stream(stream.directory, query="query-2")
    for number in range(3):
        later.run(later.batch(number, start=number + 5))
    take_back(later, 0)
    assert stream.counted() == expected(0, 1, 2, 3, 4, 5)
    where = ("--directory", stream.directory, "--backup", stream.directory.parent / "backup")
    rewind(later.directory.parent / "ck-query-2", "--to-batch", -1, *where, "--yes")
    assert stream.counted() == expected(0, 1, 2, 3, 4)
    take_back(stream, 1)
    assert stream.counted() == expected(0, 1)


def test_an_older_batch_that_an_operator_accepted_stays_with_the_batch_that_it_follows(stream: Stream) -> None:
    root = checkpoint_of(stream)
    stream.overrule(stream.batch(1, end=9), "commit")
    stream.run(5)
    for log in ("offsets", "commits"):
        (root / log / "5").write_text("v1\n{}\n[6]")
    assert rewind(root, "--to-batch", 4, "--directory", stream.directory, "--yes").exit_code == 0
    assert stream.batches() == [0, 1, 2, 3, 4, 1]


@pytest.mark.parametrize("torn", [True, False], ids=["torn", "moved away by hand"])
def test_a_directory_whose_newest_marker_is_lost_goes_on_after_it_was_taken_back(
    stream: Stream,
    torn: bool,  # noqa: FBT001 - a table of cases
) -> None:
    stream.marker_path(4).write_bytes(b"") if torn else stream.marker_path(4).unlink()
    take_back(stream, 3)
    assert stream.counted() == expected(0, 1, 2, 3)
    assert isinstance(stream.run(4), Committed)


REFUSED: dict[str, tuple[int, str]] = {
    "a marker below is torn": (3, "commit 1 is incomplete"),
    "a batch that is not there": (4, "has up to 3"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_cannot_be_taken_back_is_refused_and_nothing_is_changed(stream: Stream, how: str) -> None:
    root = checkpoint_of(stream)
    if how == "a marker below is torn":
        stream.marker_path(1).write_bytes(b"{")
    else:
        rewind(root, "--to-batch", 3, "--directory", stream.directory, "--yes")
        (root / "offsets" / "4").write_text("v1\n{}\n[5]")
    before = files(stream.directory.parent)
    to_batch, told = REFUSED[how]
    result = rewind(root, "--to-batch", to_batch, "--directory", stream.directory, "--yes")
    error = json.loads(result.stdout)["error"]
    assert (result.exit_code, error["code"]) == (2, "LAKESINK_REWIND_REFUSED")
    assert told in error["what"]
    assert files(stream.directory.parent) == before


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (["--directory", "nowhere"], "LAKESINK_DIRECTORY_MISSING"),
        (["--sink", "clicks"], "LAKESINK_OPTION_INVALID"),
    ],
)
def test_a_directory_that_is_not_meant_is_told_before_anything_is_changed(
    stream: Stream, more: list[str], code: str
) -> None:
    root = checkpoint_of(stream)
    before = files(stream.directory.parent)
    result = rewind(root, "--to-batch", 1, *more, "--yes")
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (2, code)
    assert files(stream.directory.parent) == before


def test_of_several_sinks_one_has_to_be_named(stream: Stream) -> None:
    Stream(stream.directory, sink_id="views").run(0)
    root = checkpoint_of(stream)
    result = rewind(root, "--to-batch", 1, "--directory", stream.directory, "--yes")
    assert "several sinks" in json.loads(result.stdout)["error"]["what"]
    assert rewind(root, "--to-batch", 1, "--directory", stream.directory, "--sink", "clicks", "--yes").exit_code == 0
    assert stream.counted() == expected(0, 1)
    assert len(lakesink.committed_files(stream.directory, sink_id="views")) == 1


def test_nothing_happens_without_a_yes(stream: Stream) -> None:
    root = checkpoint_of(stream)
    before = files(stream.directory.parent)
    result = rewind(root, "--to-batch", 1, "--directory", stream.directory)
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "LAKESINK_NOT_CONFIRMED"
    assert "take 3 commits with 9 rows out of the directory" in error["action"]
    assert files(stream.directory.parent) == before


def test_a_stream_that_turns_out_to_run_is_left_alone(stream: Stream) -> None:
    place = RewindableDirectory(str(stream.directory), None)
    plan = place.plan("query-1", 2)
    stream.run(5)
    with pytest.raises(QueryError, match="is running"):
        place.check(plan, "query-1", 2)


@pytest.mark.parametrize("done", range(9))
def test_cut_short_anywhere_it_leaves_a_shorter_history_and_can_be_run_again(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    place = RewindableDirectory(str(stream.directory), None)
    plan = place.plan("query-1", 1)
    removed: list[str] = []
    remove = LocalStorage.remove

    def cut(self: LocalStorage, location: str) -> None:
        if len(removed) == done:
            raise KeyboardInterrupt
        removed.append(location)
        remove(self, location)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "remove", cut)
        if done < len(plan.numbers) + len(plan.records):
            with pytest.raises(KeyboardInterrupt):
                place.rewind(plan)
    left = stream.batches()
    assert left == list(range(len(left)))
    assert stream.counted() == expected(*left)
    place.rewind(place.plan("query-1", 1))
    assert stream.counted() == expected(0, 1)
    assert isinstance(stream.run(2, rows=7), Committed)
    assert stream.counted() == expected(0, 1) + expected(2, rows=7)
