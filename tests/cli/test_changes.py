"""What the commands show of changes by key: every count that is not zero, and all of them in JSON."""

from pathlib import Path

import pytest

from lakesink.observe.terminal import ended
from lakesink_catalog.words import changed, rows_in_words
from lakesink_protocol.events import BatchFinished
from lakesink_protocol.outcome import Committed
from lakesink_protocol.row_changes import ChangeCounts, counts_in, sum_of
from lakesink_tools.past.records import history
from testkit.builders import Lake, Stream
from testkit.upserts import Upserts
from tests.audit.terminal import Run, found, terminal
from tests.audit.test_upserts import fill
from tests.decode.debezium.events import event
from tests.upsert.test_events_put_aside import row, stream_into, take

JSON = ("--output", "json")
ALL = ChangeCounts(9, 2, 1, inserted=5, updated=3, deleted=1, late_upserts=1, absent=1)


@pytest.fixture
def keyed(tmp_path: Path) -> Upserts:
    keyed = Upserts.make(tmp_path)
    fill(keyed)
    return keyed


@pytest.fixture
def run(keyed: Upserts, monkeypatch: pytest.MonkeyPatch) -> Run:
    return terminal(keyed.lake, monkeypatch)


def test_only_counts_that_are_not_zero_are_told() -> None:
    assert changed(ChangeCounts()) == "no change"
    assert changed(ChangeCounts(inserted=1_200, late_upserts=1, late_deletes=2)) == "1,200 inserted, 3 late"
    every = ChangeCounts(inserted=1, updated=2, deleted=3, late_upserts=4, absent=5, superseded=6, healed=7)
    assert changed(every) == "1 inserted, 2 updated, 3 deleted, 4 late, 5 absent, 6 superseded, 7 healed"


def test_counts_of_batches_add_up_and_come_back_from_a_summary() -> None:
    part = ChangeCounts(*range(10))
    assert sum_of([part, part]) == ChangeCounts(*range(0, 20, 2))
    assert sum_of([]) == ChangeCounts()
    assert counts_in(part.to_summary()) == part
    assert counts_in(ChangeCounts().to_summary()) == ChangeCounts()
    assert counts_in(part.to_summary() | {"lakesink.healed": "x"}) is None
    assert counts_in({}) is None


def test_deleted_rows_are_told_beside_the_stored_ones() -> None:
    assert rows_in_words(12, 0) == rows_in_words(12, None) == "12 rows"
    assert rows_in_words(12, 1) == "12 stored rows with 1 delete"


def test_status_shows_the_sum_and_that_replaced_rows_are_not_lost(run: Run) -> None:
    text = run("status").stdout
    assert ": 10 stored rows with 6 deletes, 5 files, " in text
    assert (
        "Sink keyed: The changes by key: 5 inserted, 3 updated, 1 deleted, 1 late, 1 absent, 1 superseded."
        " They replaced or removed 4 rows of earlier snapshots: these are not lost."
    ) in text
    document = found(run("status", *JSON))
    assert (document["rows"], document["position_deletes"], document["delete_files"]) == (10, 6, 4)
    assert ChangeCounts(**document["sinks"][0]["changes"]) == ALL


def test_log_shows_each_batch(run: Run) -> None:
    lines = run("log").stdout.splitlines()
    assert [line.partition("committed: ")[2].rstrip() for line in lines[2:6]] == [
        "3 inserted",
        "1 inserted, 1 updated, 1 deleted, 1 absent",
        "1 updated, 1 late",
        "1 inserted, 1 updated, 1 superseded",
    ]
    batches = found(run("log", *JSON))["batches"]
    assert sum_of(ChangeCounts(**batch["changes"]) for batch in batches) == ALL


def test_history_has_the_counts_as_values(keyed: Upserts) -> None:
    counts = [record.changes for record in history(keyed.lake.table())]
    assert None not in counts
    assert sum_of(count for count in counts if count) == ALL


def test_as_of_shows_what_its_batch_changed(run: Run, keyed: Upserts) -> None:
    text = run("as-of", "--batch", 1, "--read").stdout
    assert "5 stored rows with 2 deletes, its changes by key: 1 inserted, 1 updated, 1 deleted, 1 absent," in text
    assert "3 of 5 stored rows with 2 deletes; --limit shows more." in text
    document = found(run("as-of", "--batch", 1, "--read", *JSON))
    assert (document["rows"], document["position_deletes"], document["changes"]["deleted"]) == (5, 2, 1)
    assert {row["id"]: row["name"] for row in document["read"]} == {2: "B", 3: "c", 4: "d"}
    assert keyed.rows.keys() == {2, 3, 4, 5}


def test_diff_sums_the_batches_between_and_compares_the_rows(run: Run) -> None:
    text = run("diff", "--from-batch", 1, "--to-batch", 3).stdout
    assert "Changes by key of the batches between: 1 inserted, 2 updated, 1 late, 1 superseded." in text
    assert (
        "Files were rewritten or rows replaced, in 2 files of batch 1. So rows were compared: 2 rows removed." in text
    )
    document = found(run("diff", "--from-batch", 1, "--to-batch", 3, *JSON))
    assert (document["rows_added"], document["rows_removed"], document["compared"]) == (3, 2, "rows")
    assert {row["id"]: row["name"] for row in document["sample"]} == {3: "C", 4: "D", 5: "e"}
    assert document["changes"]["updated"] == 2


def test_an_append_shows_no_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake.make(tmp_path)
    Stream(lake).run(0)
    run = terminal(lake, monkeypatch)
    for command in (("status",), ("log",), ("as-of", "--batch", 0), ("diff", "--from-batch", -1, "--to-batch", 0)):
        assert "by key" not in run(*command).stdout
        assert "no change" not in run(*command).stdout
    assert found(run("log", *JSON))["batches"][0]["changes"] is None
    assert found(run("status", *JSON))["sinks"][0]["changes"] is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [(ALL, "(5 inserted, 3 updated, 1 deleted, 1 late, 1 absent, 1 superseded)"), (ChangeCounts(), "(no change)")],
)
def test_the_line_of_a_running_stream_has_the_counts(changes: ChangeCounts, told: str) -> None:
    event = BatchFinished(3, "demo.events", "keyed", 0.1, 0.0, Committed(1, 10, 2, 300, changes=changes))
    line = ended(event, "keyed", "batch")
    assert line is not None
    assert line.after.endswith(told)
    plain = ended(BatchFinished(3, "demo.events", "keyed", 0.1, 0.0, Committed(1, 10, 2, 300)), "keyed", "batch")
    assert plain is not None
    assert "(" not in plain.after


def test_shares_of_bad_rows_are_of_all_changes_also_those_without_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_into(tmp_path, expect={"small": ("size <> 3", "warn")})
    absent = [event("d", None, row(key, 1)) for key in range(2, 5)]
    take(stream, 0, [*(event("c", row(1, version, size=3)) for version in range(1, 6)), *absent, b"{"])
    run = terminal(stream.lake, monkeypatch)
    assert "5 of 9 rows did not meet an expectation" in run("status").stdout
    checks = found(run("quality", *JSON), 0)["checks"]
    assert [(one["name"], one["found"], one["rows"]) for one in checks] == [("dead letters", 1, 9), ("small", 5, 9)]
