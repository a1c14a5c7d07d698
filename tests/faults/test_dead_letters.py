"""What becomes of the table of dead letters under a query: rivals commit to it, and people roll it back or drop it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.types import LongType, NestedField

from lakesink.sinks.iceberg.letters import LettersSink
from lakesink.sinks.iceberg.sink import IcebergSink
from lakesink_protocol.coordinator import Write, run_batch
from lakesink_protocol.errors import BatchRefused, Reason
from lakesink_protocol.identity import Batch, stream_batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.two_phase import TaskWriter, receipts_of
from lakesink_protocol.votes import Vote, Votes
from testkit.answers import first
from testkit.builders import TABLE, Lake, Stream, offered

LETTERS = f"{TABLE}__dead_letters"
ROWS = pa.schema([("id", pa.int64())])
OPTIONS = {"on_malformed": "quarantine", "max_dead_letter_ratio": 1.0}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    return Lake.make(tmp_path, schema=schema, properties={"commit.retry.num-retries": "1"})


def sink_of(lake: Lake, **options: Any) -> IcebergSink:
    """The sink of a driver that has just started; it puts rows aside."""
    sink = Stream(lake).sink(**OPTIONS, **options)
    sink.schema = ROWS
    return sink


def job_of(batch_id: int, meanwhile: Callable[[], object] = lambda: None) -> Write:
    """A job of one task over a row that fits and one that does not; something happens before its votes are counted."""

    def job(writers: Mapping[str, TaskWriter]) -> Votes:
        [(name, writer)] = writers.items()
        rows = pa.RecordBatch.from_pylist([{"id": batch_id}, {"id": None}], schema=ROWS)
        vote = Vote(0, receipts_of(name, writer, writer.write(0, iter([rows]))))
        meanwhile()
        return Votes(1, [vote])

    return job


def run(sink: IcebergSink, batch_id: int, meanwhile: Callable[[], object] = lambda: None) -> Outcome:
    batch = stream_batch(batch_id, "query-1", start=[batch_id], end=[batch_id + 1])
    return run_batch(batch, [sink], job_of(batch_id, meanwhile))[sink.name]


def rows_in(lake: Lake) -> list[int]:
    return sorted(lake.table().scan().to_arrow()["id"].to_pylist())


def letters_in(lake: Lake) -> list[int]:
    """The batches of the dead letters."""
    return sorted(lake.catalog.load_table(LETTERS).scan().to_arrow()["batch_id"].to_pylist())


def roll_letters_back(lake: Lake) -> None:
    """To the snapshot before the newest one."""
    table = lake.catalog.load_table(LETTERS)
    head = table.current_snapshot()
    assert head is not None
    assert head.parent_snapshot_id is not None
    to = SetSnapshotRefUpdate(
        ref_name="main",
        type=SnapshotRefType.BRANCH,
        snapshot_id=head.parent_snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    lake.catalog.commit_table(table, (), (to,))


@pytest.mark.parametrize(("does", "batches"), [("commit", [0, 2]), ("skip", [0])])
def test_after_a_rollback_of_letters_the_query_goes_on_with_an_accept_that_is_printed(
    lake: Lake, does: str, batches: list[int]
) -> None:
    for batch_id in (0, 1):
        run(sink_of(lake), batch_id)
    roll_letters_back(lake)
    with pytest.raises(BatchRefused) as refused:
        run(sink_of(lake), 2)
    assert refused.value.reason is Reason.ROLLED_BACK
    assert refused.value.what.startswith(f"{LETTERS}: The table of dead letters was rolled back")
    assert isinstance(run(sink_of(lake, accept=offered(refused.value)[does]), 2), Committed)
    assert rows_in(lake) == [0, 1, 2]
    assert letters_in(lake) == batches
    run(sink_of(lake), 3)
    assert letters_in(lake) == [*batches, 3]


def test_a_driver_whose_rival_has_gone_on_finds_its_own_letters_and_not_others(lake: Lake) -> None:
    run(sink_of(lake), 0)

    def rival() -> None:
        for batch_id in (1, 2):
            run(sink_of(lake), batch_id)

    assert isinstance(run(sink_of(lake), 1, rival), AlreadyCommitted)
    assert (rows_in(lake), letters_in(lake)) == ([0, 1, 2], [0, 1, 2])


@pytest.mark.parametrize("last", [1, 2])
def test_a_rival_that_commits_the_same_letters_first_has_committed_no_others(lake: Lake, last: int) -> None:
    run(sink_of(lake), 0)

    def rival() -> None:
        for batch_id in range(1, last + 1):
            run(sink_of(lake), batch_id)

    lake.catalog.faults = [first(rival)]
    assert isinstance(run(sink_of(lake), 1), AlreadyCommitted)
    assert (rows_in(lake), letters_in(lake)) == ([0, *range(1, last + 1)], [0, *range(1, last + 1)])


def test_a_run_goes_on_when_its_letters_are_dropped_between_two_batches(lake: Lake) -> None:
    sink = sink_of(lake)
    run(sink, 0)
    lake.catalog.drop_table(LETTERS)
    assert isinstance(run(sink, 1), Committed)
    assert (rows_in(lake), letters_in(lake)) == ([0, 1], [1])


def test_letters_that_are_dropped_within_a_batch_stop_it_and_the_replay_writes_them_again(lake: Lake) -> None:
    run(sink_of(lake), 0)
    lake.catalog.faults = [first(lambda: _drop_and_make(lake))]
    with pytest.raises(BatchRefused, match="Start the query again") as refused:
        run(sink_of(lake), 1)
    assert "sink id" not in str(refused.value)
    assert isinstance(run(sink_of(lake), 1), Committed)
    assert (rows_in(lake), letters_in(lake)) == ([0, 1], [1])


def _drop_and_make(lake: Lake) -> None:
    schema = lake.catalog.load_table(LETTERS).schema()
    lake.catalog.drop_table(LETTERS)
    lake.catalog.create_table(LETTERS, schema)


def test_a_rival_that_goes_on_between_two_looks_has_rolled_nothing_back(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(sink_of(lake), 0)
    sink = sink_of(lake)
    plan_for = LettersSink.plan_for

    def later(self: LettersSink, batch: Batch) -> Any:
        monkeypatch.setattr(LettersSink, "plan_for", plan_for)
        for batch_id in (1, 2):
            run(sink_of(lake), batch_id)
        return plan_for(self, batch)

    monkeypatch.setattr(LettersSink, "plan_for", later)
    assert isinstance(run(sink, 1), AlreadyCommitted)
    assert (rows_in(lake), letters_in(lake)) == ([0, 1, 2], [0, 1, 2])
