"""`lakesink diff`: rows that came after one batch up to another, on tables that streams and others have written."""

import sys
from typing import Any

import pyarrow as pa
import pytest

from testkit.builders import ROWS, Lake, Stream
from testkit.maintenance import append_foreign, branch_off, expire, rewrite, roll_back
from tests.audit.deletes import delete_by_equality, delete_by_position
from tests.audit.terminal import Run, found, refused

JSON = ("--output", "json", "--limit", 100)


@pytest.fixture
def stream(lake: Lake) -> Stream:
    """Four batches of three rows; the second one empty."""
    stream = Stream(lake)
    for batch_id in range(4):
        stream.run(batch_id, rows=0 if batch_id == 1 else 3)
    return stream


def between(run: Run, older: int, newer: int, *options: object) -> Any:
    return found(run("diff", "--from-batch", older, "--to-batch", newer, *options, *JSON))


def told(document: Any) -> list[int]:
    """The batches that the shown rows are of."""
    return sorted(row["batch"] for row in document["sample"])


@pytest.mark.parametrize(
    ("older", "newer", "batches"),
    [(-1, 0, [0]), (-1, 3, [0, 2, 3]), (0, 1, []), (0, 2, [2]), (1, 3, [2, 3]), (2, 3, [3])],
)
def test_the_rows_after_one_batch_up_to_another_are_counted_and_shown(
    run: Run, stream: Stream, older: int, newer: int, batches: list[int]
) -> None:
    document = between(run, older, newer)
    assert told(document) == sorted(batches * 3)
    assert (document["rows_added"], document["rows_removed"]) == (3 * len(batches), 0)
    assert (document["files_added"], document["compared"]) == (len(batches), "files")
    assert document["commits"] == {"events": newer - older}
    assert document["to"]["snapshot_id"] == stream.snapshot_of(newer)
    assert document["from"]["snapshot_id"] == (stream.snapshot_of(older) if older >= 0 else None)


def test_the_sample_stops_at_the_limit_and_the_count_does_not(run: Run, stream: Stream) -> None:
    assert stream.writes == 4
    for limit in (0, 1, 4):
        document = found(run("diff", "--from-batch", -1, "--to-batch", 3, "--output", "json", "--limit", limit))
        assert (document["rows_added"], len(document["sample"])) == (9, limit)


def test_rows_of_others_are_counted_and_their_writers_told(run: Run, lake: Lake, stream: Stream) -> None:
    append_foreign(lake)
    Stream(lake, "clicks").run(0, rows=2)
    stream.run(4)
    document = between(run, 3, 4, "--sink", "events")
    assert (document["rows_added"], document["commits"]) == (6, {"events": 1, "clicks": 1, "others": 1})
    text = run("diff", "--from-batch", 3, "--to-batch", 4, "--sink", "events").stdout
    assert "Commits between: clicks 1, events 1, others 1." in text


def test_after_a_compaction_rows_are_compared_and_it_is_said(run: Run, lake: Lake, stream: Stream) -> None:
    rewrite(lake)
    stream.run(4)
    document = between(run, 2, 4)
    assert told(document) == [3, 3, 3, 4, 4, 4]
    assert (document["rows_added"], document["rows_removed"], document["compared"]) == (6, 0, "rows")
    text = run("diff", "--from-batch", 2, "--to-batch", 4).stdout
    assert "rows were compared: 0 rows removed." in text


def test_rows_that_somebody_deleted_between_are_told_apart_from_those_added(
    run: Run, lake: Lake, stream: Stream
) -> None:
    lake.table().delete("position == 0")
    stream.run(4)
    document = between(run, 3, 4)
    assert (document["rows_added"], document["rows_removed"], document["compared"]) == (3, 3, "rows")
    assert told(document) == [4, 4, 4]
    assert between(run, -1, 4)["rows_added"] == 9


def test_equal_rows_are_counted_as_often_as_they_came(run: Run, lake: Lake) -> None:
    same = pa.Table.from_pylist([{"batch": 7, "position": 7, "written": 7}] * 2, schema=ROWS)
    stream = Stream(lake)
    stream.run(0)
    lake.table().append(same)
    stream.run(1)
    rewrite(lake)
    lake.table().append(same)
    stream.run(2)
    document = between(run, 1, 2)
    assert (document["compared"], document["rows_added"]) == ("rows", 5)
    assert told(document) == [2, 2, 2, 7, 7]


def test_a_renamed_column_is_the_same_column(run: Run, lake: Lake, stream: Stream) -> None:
    stream.run(4)
    with lake.table().update_schema() as update:
        update.rename_column("batch", "number")
    rewrite(lake)
    lake.table().append(pa.table({"number": [9], "position": [9], "written": [9]}))
    stream_after = lake.table().scan().to_arrow()
    assert "number" in stream_after.column_names
    document = between(run, 2, 4)
    assert told(document) == [3, 3, 3, 4, 4, 4], "in the schema of the newer snapshot"


def test_a_batch_that_was_rolled_back_is_said_to_be(run: Run, lake: Lake, stream: Stream) -> None:
    roll_back(lake, stream.snapshot_of(2))
    document = between(run, 2, 3)
    assert document["rows_added"] == 3
    assert document["to"]["note"].startswith("Rolled back:")
    assert "Rolled back:" in run("diff", "--from-batch", 2, "--to-batch", 3).stdout


def test_expired_ends_are_refused_and_expired_steps_between_are_said(run: Run, lake: Lake, stream: Stream) -> None:
    lake.table().manage_snapshots().create_tag(stream.snapshot_of(0), "keep").commit()
    expire(lake)
    error = refused(run("diff", "--from-batch", 2, "--to-batch", 3, *JSON))
    assert error["code"] == "LAKESINK_BATCH_EXPIRED"
    document = between(run, 0, 3)
    assert (told(document), document["commits"]) == ([2, 2, 2, 3, 3, 3], None)
    assert "have expired or were rolled back" in run("diff", "--from-batch", 0, "--to-batch", 3).stdout


def test_a_branch_has_its_own_batches(run: Run, lake: Lake, stream: Stream) -> None:
    branch_off(lake, "trial")
    Stream(lake, "trial-run", branch="trial").filled(2)
    stream.run(4)
    document = between(run, 0, 1, "--branch", "trial")
    assert (told(document), document["branch"]) == ([1, 1, 1], "trial")
    assert between(run, -1, 0, "--branch", "trial")["rows_added"] == 12, "all that the branch began with, too"


def test_the_answer_in_words_ends_by_what_to_do_next(run: Run, stream: Stream) -> None:
    assert stream.writes == 4
    lines = run("diff", "--from-batch", 2, "--to-batch", 3, "--limit", 2).stdout.splitlines()
    assert lines[0] == "demo.events in test: 3 rows added after batch 2 up to batch 3 of events, 1 file"
    assert lines[1].split() == ["batch", "position", "written"]
    assert lines[-2:] == [
        "2 of 3 rows shown; --limit shows more.",
        "Next: lakesink as-of demo.events --catalog test --batch 3 --read",
    ]


def test_rows_deleted_by_position_are_not_there(run: Run, lake: Lake, stream: Stream) -> None:
    [file] = [task.file.file_path for task in lake.table().scan(snapshot_id=stream.snapshot_of(0)).plan_files()]
    delete_by_position(lake, file, [0, 2])
    stream.run(4)
    document = between(run, 3, 4)
    assert (told(document), document["rows_added"], document["rows_removed"]) == ([4, 4, 4], 3, 2)
    assert (document["compared"], document["files_removed"]) == ("rows", 3), "all that the deletes may concern"
    assert told(between(run, -1, 4)) == [0, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert between(run, 2, 3)["compared"] == "files"


def test_equality_deletes_are_refused_by_name(run: Run, lake: Lake, stream: Stream) -> None:
    delete_by_equality(lake, batch=2)
    stream.run(4)
    error = refused(run("diff", "--from-batch", 3, "--to-batch", 4, *JSON))
    assert (error["code"], "equality deletes" in error["what"]) == ("LAKESINK_DELETES_UNSUPPORTED", True)
    assert refused(run("as-of", "--batch", 4, "--read", "--output", "json"))["code"] == error["code"]
    assert found(run("as-of", "--batch", 4, "--output", "json"))["snapshot_id"] == stream.snapshot_of(4)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--from-batch", 3, "--to-batch", 3), "LAKESINK_OPTION_INVALID"),
        (("--from-batch", 3, "--to-batch", 4), "LAKESINK_BATCH_NOT_YET"),
        (("--from-batch", 0, "--to-batch", 3, "--sink", "event"), "LAKESINK_SINK_UNKNOWN"),
        (("--from-batch", 0, "--to-batch", 3, "--branch", "mian"), "LAKESINK_BRANCH_MISSING"),
    ],
)
def test_what_cannot_be_compared_is_refused(run: Run, stream: Stream, options: tuple[str, ...], code: str) -> None:
    assert stream.writes == 4
    assert refused(run("diff", *options, *JSON))["code"] == code


def test_without_duckdb_it_is_said_what_to_install(run: Run, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lake.files()
    monkeypatch.setitem(sys.modules, "duckdb", None)  # as if it were not installed
    error = refused(run("diff", "--from-batch", 0, "--to-batch", 3, *JSON))
    assert (error["code"], error["action"]) == ("LAKESINK_DUCKDB_MISSING", "pip install duckdb")
