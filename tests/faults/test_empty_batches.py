"""A batch without rows is a batch: it is committed, once, and carries over what the table holds."""

from pathlib import Path

import pytest

from lakesink.rows.expectations import Expected, OnUnmet
from lakesink_protocol.errors import CommitUnresolved
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_protocol.quality import Quality
from testkit.answers import ERRORS, first, lands_but_says
from testkit.builders import Lake, Stream, counted, expected, parquet_files
from testkit.maintenance import append_foreign, expire, roll_back

PLACES: dict[str, tuple[int, ...]] = {
    "first": (0, 3, 3),
    "middle": (3, 0, 3),
    "last": (3, 3, 0),
    "first two": (0, 0, 3),
    "all": (0, 0, 0),
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.make(tmp_path, properties={"commit.retry.num-retries": "1"})


def rows_of(sizes: tuple[int, ...]) -> dict[tuple[int, int], int]:
    return {(batch_id, position): 1 for batch_id, rows in enumerate(sizes) for position in range(rows)}


@pytest.mark.parametrize("sizes", PLACES.values(), ids=PLACES)
def test_every_batch_is_committed_once_whether_it_has_rows_or_not(lake: Lake, sizes: tuple[int, ...]) -> None:
    stream = Stream(lake)
    for batch_id, rows in enumerate(sizes):
        outcome = stream.run(batch_id, rows=rows)
        assert isinstance(outcome, Committed)
        assert (outcome.rows, outcome.files) == (rows, 1 if rows else 0)
        assert isinstance(stream.run(batch_id, rows=rows), AlreadyCommitted)
    assert [mark.batch_id for mark in stream.marks()] == [0, 1, 2]
    assert counted(lake) == rows_of(sizes)
    assert len(parquet_files(lake)) == sum(1 for rows in sizes if rows)


@pytest.mark.parametrize("lost", range(3))
@pytest.mark.parametrize("sizes", PLACES.values(), ids=PLACES)
def test_the_same_if_an_answer_is_lost_or_a_driver_dies_before_its_commit(
    lake: Lake, sizes: tuple[int, ...], lost: int
) -> None:
    stream = Stream(lake)
    for batch_id, rows in enumerate(sizes):
        if batch_id == lost:
            lake.catalog.faults = [lake.catalog.arrives_late] * 2
            with pytest.raises(CommitUnresolved):
                stream.run(batch_id, rows=rows)
            lake.catalog.faults = [lands_but_says(ERRORS["503 unavailable"])]
        outcome = stream.run(batch_id, rows=rows)
        assert isinstance(outcome, Committed)
        assert outcome.recovered == (batch_id == lost)
    assert counted(lake) == rows_of(sizes)
    assert len(stream.marks()) == 3


def test_an_empty_batch_is_a_snapshot_with_the_heads_manifests(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)
    append_foreign(lake)
    before = lake.head()
    stream.run(1, rows=0)
    after, io = lake.head(), lake.table().io
    assert after.parent_snapshot_id == before.snapshot_id
    assert [part.manifest_path for part in after.manifests(io)] == [part.manifest_path for part in before.manifests(io)]
    assert after.summary is not None
    assert before.summary is not None
    totals = ("total-records", "total-data-files", "total-files-size")
    assert [after.summary[name] for name in totals] == [before.summary[name] for name in totals]
    assert "added-records" not in after.summary.additional_properties


def test_a_job_of_no_tasks_is_an_empty_batch(lake: Lake) -> None:
    stream = Stream(lake)
    batch = stream.batch(0)
    outcome = stream.run_with(stream.sink(), batch, job=stream.write(batch, tasks=0))
    assert isinstance(outcome, Committed)
    assert outcome.rows == 0
    assert isinstance(stream.run(1), Committed)


@pytest.mark.parametrize("on_unmet", OnUnmet)
def test_a_job_of_no_tasks_has_met_every_expectation(lake: Lake, on_unmet: OnUnmet) -> None:
    stream = Stream(lake)
    sink, batch = stream.sink(), stream.batch(0)
    sink.expected = (Expected("small", on_unmet),)
    outcome = stream.run_with(sink, batch, job=stream.write(batch, tasks=0))
    assert isinstance(outcome, Committed)
    assert outcome.quality == Quality(unmet={"small": 0})


def test_an_empty_batch_over_others_who_are_quicker(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)
    lake.catalog.faults = [first(lambda: append_foreign(lake))]
    outcome = stream.run(1, rows=0)
    assert isinstance(outcome, Committed)
    assert outcome.attempts == 2
    assert sum(counted(lake).values()) == 4


def test_a_rollback_over_an_empty_batch_alone_loses_no_row_and_stops_nobody_wrongly(lake: Lake) -> None:
    """All that the undone snapshot held is under the head; with the links cut by expiry, that is what counts."""
    stream = Stream(lake)
    stream.run(0)
    stream.run(1)
    stream.run(2, rows=0)
    roll_back(lake, stream.snapshot_of(1))
    foreign = append_foreign(lake)
    foreign += append_foreign(lake)
    expire(lake)
    assert isinstance(stream.run(3), Committed)
    assert counted(lake) == expected(0, 1, 3) + foreign
