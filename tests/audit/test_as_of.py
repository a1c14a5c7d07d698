"""`lakesink as-of`: the snapshot of a batch, a time or a tag, on tables that streams and others have written."""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from lakesink_protocol.identity import SinkKind
from lakesink_tools.cli.rows import cells, documents
from lakesink_tools.past.as_of import look_back
from lakesink_tools.past.resolve_snapshot import by_batch, queries, ranges
from testkit.builders import TABLE, Chance, Lake, Stream
from testkit.maintenance import append_foreign, branch_off, edit_metadata, expire, expire_like_java, roll_back
from tests.audit.terminal import Run, found, refused, terminal

JSON = ("--output", "json")
Expire = Callable[[Lake], None]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.make(tmp_path)


@pytest.fixture
def run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Run:
    return terminal(lake, monkeypatch)


@pytest.fixture
def stream(lake: Lake) -> Stream:
    """Four batches of three rows; the second one empty."""
    stream = Stream(lake)
    for batch_id in range(4):
        stream.run(batch_id, rows=0 if batch_id == 1 else 3)
    return stream


def tag(lake: Lake, snapshot_id: int, name: str) -> None:
    lake.table().manage_snapshots().create_tag(snapshot_id, name).commit()


def time_of(lake: Lake, snapshot_id: int) -> datetime:
    snapshot = lake.table().snapshot_by_id(snapshot_id)
    assert snapshot is not None
    return datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)


# By batch


@pytest.mark.parametrize(("batch_id", "rows"), [(0, 3), (1, 3), (2, 6), (3, 9)])
def test_every_batch_is_found_with_all_rows_up_to_it(run: Run, stream: Stream, batch_id: int, rows: int) -> None:
    document = found(run("as-of", "--batch", batch_id, "--read", "--limit", 100, *JSON))
    assert document["snapshot_id"] == stream.snapshot_of(batch_id)
    assert (document["rows"], len(document["read"])) == (rows, rows)
    assert {row["batch"] for row in document["read"]} == {0, 2, 3}.intersection(range(batch_id + 1))
    assert document["batches"] == [{"sink": "events", "branch": "main", "kind": "stream", "batch_id": batch_id}]


def test_a_batch_that_was_replayed_is_its_one_commit(run: Run, stream: Stream) -> None:
    stream.run(3)
    document = found(run("as-of", "--batch", 3, *JSON))
    assert (document["snapshot_id"], document["note"]) == (stream.snapshot_of(3), "")


def test_after_a_rollback_and_its_replay_the_batch_is_the_one_in_the_branch(
    run: Run, lake: Lake, stream: Stream
) -> None:
    old = stream.snapshot_of(3)
    roll_back(lake, stream.snapshot_of(2))
    rolled_back = found(run("as-of", "--batch", 3, *JSON))
    assert (rolled_back["snapshot_id"], rolled_back["rows"]) == (old, 9)
    assert rolled_back["note"].startswith("Rolled back:")
    stream.run(3)
    replayed = found(run("as-of", "--batch", 3, *JSON))
    assert replayed["snapshot_id"] == stream.snapshot_of(3) != old
    assert replayed["note"].startswith("2 retained snapshots contain batch 3")
    roll_back(lake, old)
    assert found(run("as-of", "--batch", 3, *JSON))["snapshot_id"] == old, "the branch, not the newest, decides"


def test_foreign_commits_change_nothing_and_are_in_the_table_then(run: Run, lake: Lake, stream: Stream) -> None:
    append_foreign(lake)
    stream.run(4)
    assert found(run("as-of", "--batch", 3, *JSON))["rows"] == 9
    assert found(run("as-of", "--batch", 4, *JSON))["rows"] == 13


def test_a_batch_that_is_not_there_yet_is_told_with_the_last_one(run: Run, stream: Stream) -> None:
    assert stream.writes == 4
    error = refused(run("as-of", "--batch", 4, *JSON))
    assert error["code"] == "LAKESINK_BATCH_NOT_YET"
    assert error["what"].endswith("the last is 3.")


@pytest.mark.parametrize("expiry", [expire, expire_like_java])
def test_an_expired_batch_is_told_with_what_is_retained_and_what_keeps_more(
    run: Run, lake: Lake, stream: Stream, expiry: Expire
) -> None:
    tag(lake, stream.snapshot_of(0), "keep")
    expiry(lake)
    error = refused(run("as-of", "--batch", 2, *JSON))
    assert error["code"] == "LAKESINK_BATCH_EXPIRED"
    assert error["what"].endswith("Retained: batches 0, 3.")
    assert "tag_every" in error["action"]
    assert found(run("as-of", "--batch", 0, *JSON))["rows"] == 3, "only the tag keeps it"


def test_a_batch_whose_every_trace_expired_is_expired_not_unknown(run: Run, lake: Lake, stream: Stream) -> None:
    lake.table().manage_snapshots().remove_tag(stream.key.ledger_tag).commit()
    append_foreign(lake)
    expire(lake)
    assert "no batch of it any more" in refused(run("as-of", "--batch", 3, *JSON))["what"]
    assert refused(run("as-of", "--batch", 4, *JSON))["code"] == "LAKESINK_BATCH_NOT_YET"


def test_a_version_that_an_application_left_out_is_the_one_before(lake: Lake) -> None:
    nightly = Stream(lake, "nightly", kind=SinkKind.TXN)
    for version in (10, 20):
        nightly.run(version)
    chosen = by_batch(look_back(lake.table(), TABLE), 15)
    assert chosen.commit.snapshot_id == nightly.snapshot_of(10)
    assert chosen.note.startswith("Batch 15 made no snapshot of its own")


# Sinks and branches


def test_of_several_sinks_one_must_be_named(run: Run, lake: Lake, stream: Stream) -> None:
    clicks = Stream(lake, "clicks")
    clicks.run(0)
    error = refused(run("as-of", "--batch", 0, *JSON))
    assert error["code"] == "LAKESINK_SINK_AMBIGUOUS"
    assert "clicks (stream), events (stream)" in error["what"]
    assert found(run("as-of", "--batch", 0, "--sink", "clicks", *JSON))["snapshot_id"] == clicks.snapshot_of(0)
    document = found(run("as-of", "--batch", 0, "--sink", "events", *JSON))
    assert document["snapshot_id"] == stream.snapshot_of(0)
    assert "Did you mean 'clicks'?" in refused(run("as-of", "--batch", 0, "--sink", "click", *JSON))["action"]


def test_replayed_dead_letters_are_no_second_sink(run: Run, lake: Lake, stream: Stream) -> None:
    replay = Stream(lake, "dead-letters.replay.1c82", kind=SinkKind.TXN)
    replay.run(0)
    expected = stream.snapshot_of(0)
    assert found(run("as-of", "--batch", 0, *JSON))["snapshot_id"] == expected
    assert found(run("diff", "--from-batch", -1, "--to-batch", 0, *JSON))["to"]["snapshot_id"] == expected
    assert found(run("lineage", "--batch", 0, *JSON), exit_code=1)["batch"]["sink"] == "events"
    named = found(run("as-of", "--batch", 0, "--sink", replay.sink_id, *JSON))
    assert named["snapshot_id"] == replay.snapshot_of(0)


def test_a_branch_has_its_own_batches(run: Run, lake: Lake, stream: Stream) -> None:
    branch_off(lake, "trial")
    trial = Stream(lake, "trial-run", branch="trial")
    for batch_id in range(2):
        trial.run(batch_id)
    document = found(run("as-of", "--batch", 1, "--branch", "trial", *JSON))
    assert (document["snapshot_id"], document["rows"]) == (trial.snapshot_of(1), 15)
    assert [batch["sink"] for batch in document["batches"]] == ["trial-run", "events"]
    at = time_of(lake, trial.snapshot_of(0)).isoformat()
    assert found(run("as-of", "--time", at, "--branch", "trial", *JSON))["snapshot_id"] == trial.snapshot_of(0)
    assert "give --branch" in refused(run("as-of", "--batch", 1, "--sink", "trial-run", *JSON))["action"]
    error = refused(run("as-of", "--batch", 1, "--branch", "trail", *JSON))
    assert (error["code"], error["action"]) == ("LAKESINK_BRANCH_MISSING", "Did you mean 'trial'?")
    assert found(run("as-of", "--batch", 3, *JSON))["snapshot_id"] == stream.snapshot_of(3)


def test_a_table_that_nobody_wrote_to_knows_no_batch(run: Run, lake: Lake) -> None:
    assert lake.files()
    assert refused(run("as-of", "--batch", 0, *JSON))["code"] == "LAKESINK_SINK_UNKNOWN"
    assert refused(run("as-of", "--time", "2030-01-01", *JSON))["code"] == "LAKESINK_TIME_NOT_RETAINED"


# By time and by tag


def test_a_time_is_what_was_the_head_then(run: Run, lake: Lake, stream: Stream) -> None:
    for batch_id in range(3):
        at = time_of(lake, stream.snapshot_of(batch_id))
        following = time_of(lake, stream.snapshot_of(batch_id + 1))
        for time in (at, following - timedelta(milliseconds=1)):
            document = found(run("as-of", "--time", time.isoformat(), *JSON))
            assert document["snapshot_id"] == stream.snapshot_of(batch_id)
    naive = (at.replace(tzinfo=None)).isoformat()
    assert found(run("as-of", "--time", naive, *JSON))["snapshot_id"] == stream.snapshot_of(2), "UTC"


def test_a_time_before_a_rollback_shows_what_readers_saw(run: Run, lake: Lake) -> None:
    stream = Stream(lake, chance=Chance(itertools.count(1_700_000_000_000, 1000)))  # before the rollback's clock
    for batch_id in range(4):
        stream.run(batch_id)
    old = stream.snapshot_of(3)
    at = time_of(lake, old)
    kept = stream.snapshot_of(2)
    roll_back(lake, kept)
    assert found(run("as-of", "--time", at.isoformat(), *JSON))["snapshot_id"] == old
    assert found(run("as-of", "--time", datetime.now(UTC).isoformat(), *JSON))["snapshot_id"] == kept


@pytest.mark.parametrize("expiry", [expire, expire_like_java])
def test_a_time_whose_head_expired_is_not_answered_by_its_neighbour(
    run: Run, lake: Lake, stream: Stream, expiry: Expire
) -> None:
    times = [time_of(lake, stream.snapshot_of(batch_id)).isoformat() for batch_id in range(4)]
    tag(lake, stream.snapshot_of(0), "keep")
    expiry(lake)
    error = refused(run("as-of", "--time", times[2], *JSON))
    assert error["code"] == "LAKESINK_TIME_NOT_RETAINED"
    assert error["action"].startswith("Either")
    assert "keep" in error["action"]
    assert found(run("as-of", "--time", times[3], *JSON))["rows"] == 9


def test_a_time_before_the_first_snapshot_is_told_with_the_first(run: Run, stream: Stream) -> None:
    error = refused(run("as-of", "--time", "2001-01-01T00:00:00+02:00", *JSON))
    assert error["code"] == "LAKESINK_TIME_NOT_RETAINED"
    assert f"the next that is retained is {stream.snapshot_of(0)}" in error["what"]
    assert error["action"].startswith("The table was empty then")


def test_a_tag_is_found_and_its_name_stands_in_the_sql(run: Run, lake: Lake, stream: Stream) -> None:
    tag(lake, stream.snapshot_of(2), "release-7")
    for options in (("--tag", "release-7"), ("--batch", 2)):
        document = found(run("as-of", *options, *JSON))
        assert (document["snapshot_id"], document["tags"]) == (stream.snapshot_of(2), ["release-7"])
        assert document["sql"]["spark"] == "SELECT * FROM demo.events VERSION AS OF 'release-7';"
        assert document["sql"]["trino"] == "SELECT * FROM demo.events FOR VERSION AS OF 'release-7';"
        assert document["sql"]["duckdb"].endswith(f"snapshot_from_id => {stream.snapshot_of(2)});")
    error = refused(run("as-of", "--tag", "relaese-7", *JSON))
    assert (error["code"], error["action"]) == ("LAKESINK_TAG_UNKNOWN", "Did you mean 'release-7'?")


def test_a_tag_at_nothing_is_told_as_such(run: Run, lake: Lake, stream: Stream) -> None:
    gone = 2**40

    def cut(metadata: dict[str, Any]) -> None:
        metadata["refs"]["gone"] = {"snapshot-id": gone, "type": "tag"}

    edit_metadata(lake, cut)
    assert stream.marks()
    assert refused(run("as-of", "--tag", "gone", *JSON))["code"] == "LAKESINK_TAG_DANGLING"


def test_audit_tags_outlive_expiry_and_stand_in_the_sql(run: Run, lake: Lake) -> None:
    stream = Stream(lake, options={"tag_every": "2"})
    for batch_id in range(6):
        stream.run(batch_id)
    expire(lake)
    document = found(run("as-of", "--batch", 2, "--read", *JSON))
    assert (document["rows"], len(document["read"])) == (9, 9)
    assert document["sql"]["spark"].endswith(f"VERSION AS OF '{stream.key.audit_tag(2)}';")
    assert found(run("as-of", "--tag", stream.key.audit_tag(2), *JSON))["snapshot_id"] == document["snapshot_id"]
    assert "Retained: batches 0, 2, 4-5." in refused(run("as-of", "--batch", 3, *JSON))["what"]


def test_the_ledger_tag_moves_on_so_the_sql_names_the_snapshot(run: Run, stream: Stream) -> None:
    result = run("as-of", "--tag", stream.key.ledger_tag)
    assert f"VERSION AS OF {stream.snapshot_of(3)};" in result.stdout
    assert "Tag lakesink-events moves on" in result.stdout


# In words


def test_the_answer_in_words_has_facts_sql_and_what_to_do_next(run: Run, stream: Stream) -> None:
    lines = run("as-of", "--batch", 2).stdout.splitlines()
    start = f"demo.events in test as of batch 2: snapshot {stream.snapshot_of(2)}, committed 2030-"
    assert lines[0].startswith(start)
    assert lines[0].endswith("6 rows, newest batches: events 2")
    assert [line.partition(":")[0] for line in lines[1:]] == ["Spark", "Trino", "DuckDB", "Next"]


def test_rows_in_words_stop_at_the_limit(run: Run, stream: Stream) -> None:
    assert stream.writes == 4
    lines = run("as-of", "--batch", 3, "--read", "--limit", 2).stdout.splitlines()
    assert lines[1].split() == ["batch", "position", "written"]
    assert [line.split() for line in lines[2:4]] == [["3", "0", "4"], ["3", "1", "4"]]
    assert lines[4] == "2 of 9 rows; --limit shows more."


def test_nothing_of_data_or_names_reaches_the_terminal_as_markup_or_control_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = "[red]x[/red]\x1b[31m\u202e\x07\n"
    schema = Schema(NestedField(1, evil, StringType()), NestedField(2, "number", LongType()))
    lake = Lake.make(tmp_path, schema=schema)
    lake.table().append(pa.table({evil: [evil], "number": pa.array([1], pa.int64())}))
    tag(lake, lake.head().snapshot_id, evil)
    text = terminal(lake, monkeypatch)("as-of", "--tag", evil, "--read").stdout
    assert text.count("[red]x[/red]") >= 3, "title, heading and cell"
    assert f"VERSION AS OF {lake.head().snapshot_id};" in text
    assert not {"\x1b", "\u202e", "\x07"} & set(text)
    assert len(text.splitlines()) == 8


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--batch", 1, "--tag", "x"),
        ("--tag", "x", "--sink", "events"),
        ("--tag", "x", "--branch", "main"),
    ],
)
def test_a_question_must_be_one_question(run: Run, options: tuple[str, ...]) -> None:
    assert refused(run("as-of", *options, *JSON))["code"] == "LAKESINK_OPTION_INVALID"


@pytest.mark.parametrize("options", [("--time", "soon"), ("--batch", "-1"), ("--batch", 1, "--read", "--limit", 0)])
def test_a_malformed_option_is_told_by_its_name(run: Run, options: tuple[str, ...]) -> None:
    result = run("as-of", *options)
    assert result.exit_code == 2
    assert f"Invalid value for '{options[-2]}'" in result.stderr


# Pure parts


def test_sql_quotes_what_an_engine_would_not_take_bare() -> None:
    sql = queries(("my-space", "select`it"), "file:///data/o'clock.json", 7005007005, "it's")
    assert sql == {
        "Spark": "SELECT * FROM `my-space`.`select``it` VERSION AS OF 7005007005;",
        "Trino": 'SELECT * FROM "my-space"."select`it" FOR VERSION AS OF 7005007005;',
        "DuckDB": "SELECT * FROM iceberg_scan('/data/o''clock.json', snapshot_from_id => 7005007005);",
    }


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3, 3], "3"), ([9, 0, 8, 7], "0, 7-9"), (range(0, 20, 2), "…, 4, 6, 8, 10, 12, 14, 16, 18")],
)
def test_batches_are_told_as_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_every_value_has_a_form_in_json() -> None:
    rows = pa.table(
        {
            "float": [float("nan")],
            "bytes": [b"\x00\xff"],
            "nested": [{"list": [1, None], "at": datetime(2030, 1, 1, tzinfo=UTC)}],
            "far": pa.array([316_500_000_000_000_000], pa.timestamp("us")),
        }
    )
    [row] = documents(rows)
    assert row | {"far": ""} == {
        "float": "nan",
        "bytes": "00ff",
        "nested": {"list": [1, None], "at": "2030-01-01T00:00:00+00:00"},
        "far": "",
    }
    assert row["far"].startswith("11999-")
    assert cells([row])[0][2] == '{"list": [1, null], "at": "2030-01-01T00:00:00+00:00"}'


def test_a_batch_that_was_accepted_late_is_shown_in_its_place_or_with_a_note(
    run: Run, lake: Lake, stream: Stream
) -> None:
    first = stream.snapshot_of(1)
    stream.overrule(stream.batch(1, end=9))
    document = found(run("as-of", "--batch", 1, *JSON))
    assert document["snapshot_id"] == first
    expire(lake)
    late = found(run("as-of", "--batch", 1, *JSON))
    assert late["snapshot_id"] != first
    assert late["note"].startswith("An operator accepted batch 1 after batch 3")
