"""The table after random changes, deaths and rivals, compared with a dictionary. Real files and a real catalog."""

import random
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Summary
from pyiceberg.table.update import SetSnapshotRefUpdate

from lakesink.keys import live_rows
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_protocol.row_changes import ChangeCounts, counts_in
from lakesink_tools.audit.audit import audit
from testkit.builders import Lake
from testkit.change_table import Change, ChangeStream, Reference, rows_of, upsert_lake, write_all_anew
from testkit.deaths import answer_is_lost, dies_after, dies_before, until_it_lives
from testkit.examples import seeds
from tests.audit.deletes import delete_by_position


def summary_of(lake: Lake, snapshot_id: int) -> Summary:
    """What a batch's snapshot says; a compaction may be on it."""
    snapshot = lake.table().snapshot_by_id(snapshot_id)
    assert snapshot is not None
    assert snapshot.summary is not None
    return snapshot.summary


@pytest.fixture(params=[live_rows.LARGE_ROWS, 2])
def delete_files_stay(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a few positions on a delete file can stay beside a newer one of the same data file."""
    monkeypatch.setattr(live_rows, "LARGE_ROWS", request.param)
    monkeypatch.setattr(live_rows, "_LARGE_TIMES", 2 if request.param == 2 else 8)


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.usefixtures("delete_files_stay")
@pytest.mark.dear
def test_the_table_equals_the_batches_applied_to_a_dictionary(tmp_path: Path, seed: int, *, partitioned: bool) -> None:
    lake, reference = upsert_lake(tmp_path, partitioned=partitioned), Reference()
    stream = ChangeStream(lake, seed=seed)
    for number in range(12):
        outcome = stream.run(number)
        counts = reference.apply(stream.changes(number))
        assert isinstance(outcome, Committed)
        assert outcome.changes == counts
        assert counts.balanced
        assert rows_of(lake) == reference.table
        assert counts_in(summary_of(lake, outcome.snapshot_id).additional_properties) == counts
        assert isinstance(stream.run(number), AlreadyCommitted)
        assert rows_of(lake) == reference.table


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.usefixtures("delete_files_stay")
@pytest.mark.dear
def test_deaths_lost_answers_and_compactions_change_no_row(tmp_path: Path, seed: int) -> None:
    lake, reference = upsert_lake(tmp_path, partitioned=seed % 2 == 0), Reference()
    stream, chance = ChangeStream(lake, seed=100 + seed), random.Random(seed)

    def is_compacted_first(apply: Callable[[], object]) -> object:
        write_all_anew(lake)
        return apply()

    for number in range(12):
        faults = [dies_before, dies_after, answer_is_lost, is_compacted_first]
        lake.catalog.faults = chance.choices(faults, k=chance.randrange(4))
        until_it_lives(partial(stream.run, number))
        lake.catalog.faults = []
        reference.apply(stream.changes(number))
        assert rows_of(lake) == reference.table
        if chance.random() < 0.3:
            write_all_anew(lake)
            assert rows_of(lake) == reference.table


def test_a_batch_after_a_rollback_is_located_on_the_present_head(tmp_path: Path) -> None:
    lake, reference = upsert_lake(tmp_path), Reference()
    stream = ChangeStream(lake, seed=7)
    for number in range(6):
        stream.run(number)
        if number <= 3:
            reference.apply(stream.changes(number))
    table = lake.table()
    back = SetSnapshotRefUpdate(
        ref_name="main",
        type=SnapshotRefType.BRANCH,
        snapshot_id=stream.snapshot_of(3),
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    lake.catalog.commit_table(table, (), (back,))
    assert rows_of(lake) == reference.table
    for number in range(4, 8):
        stream.run(number)
        reference.apply(stream.changes(number))
        assert rows_of(lake) == reference.table


def test_two_tasks_with_one_key_leave_its_newest_row(tmp_path: Path) -> None:
    lake, reference = upsert_lake(tmp_path), Reference()
    stream = ChangeStream(lake, seed=3, options={"maintenance": "off"})
    for number in range(5):
        changes = stream.changes(number)
        half = len(changes) // 2
        stream.run_changes(number, [changes[:half], changes[half:]])
        counts = reference.apply(changes)
        assert rows_of(lake) == reference.table
        assert counts_in(lake.head().summary.additional_properties) == counts  # type: ignore[union-attr]


def test_a_snapshot_with_deletes_is_no_append(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    stream, found = ChangeStream(lake, seed=5), set()
    for number in range(8):
        stream.run(number)
        summary = summary_of(lake, stream.snapshot_of(number))
        has_deletes = int(summary.additional_properties.get("added-delete-files", 0)) > 0
        has_rows = int(summary.additional_properties.get("added-data-files", 0)) > 0
        operation = "append" if not has_deletes else "overwrite" if has_rows else "delete"
        assert summary.operation.value == operation
        found.add(operation)
    assert {"append", "overwrite"} <= found


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.dear
def test_what_a_driver_remembers_of_the_table_stays_right(tmp_path: Path, *, partitioned: bool) -> None:
    lake, reference = upsert_lake(tmp_path, partitioned=partitioned), Reference()
    stream, chance = ChangeStream(lake, seed=11), random.Random(4)
    sink = stream.sink()
    for number in range(16):
        if chance.random() < 0.3:
            write_all_anew(lake)
        if chance.random() < 0.2:
            lake.table().delete(f"id < {chance.randrange(20)}")
            reference.rows = {row["id"]: reference.rows[row["id"]] for row in rows_of(lake)}
        outcome = stream.run_with(sink, number)
        assert isinstance(outcome, Committed)
        assert outcome.changes == reference.apply(stream.changes(number))
        assert rows_of(lake) == reference.table


@pytest.mark.parametrize("others", [[[0, 0]], [[0], [0, 1]], [[0, 1], [1, 2], [2, 0]], [[0, 10]]], ids=str)
def test_positions_that_others_delete_twice_or_that_no_row_has_leave_the_counts_right(
    tmp_path: Path, others: list[list[int]]
) -> None:
    lake = upsert_lake(tmp_path)
    stream = ChangeStream(lake)
    stream.run_changes(0, [[Change(key, 0, "a", "v", Decimal(1)) for key in range(10)]])
    [task] = lake.table().scan().plan_files()
    for positions in others:
        delete_by_position(lake, task.file.file_path, positions, bounds=True)
    for number, key in enumerate(range(5, 9), start=1):
        outcome = stream.run_changes(number, [[Change(key, number, "a", "v", Decimal(1))]])
        assert isinstance(outcome, Committed)
        assert outcome.changes == ChangeCounts(upserts=1, updated=1)
    assert [row["id"] for row in rows_of(lake)] == sorted(set(range(10)) - {one for some in others for one in some})
    assert audit(lake.table()).findings == ()
