"""What becomes of the table of dead letters under a query: rivals commit to it, and people roll it back or drop it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.types import LongType, NestedField

from lakesink.rows.expectations import Expected, OnUnmet
from lakesink.settings.relations import Entry
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.side import side_sink
from lakesink.sinks.iceberg.side.side_sink import SideTableSink
from lakesink_catalog.commit.request import is_current as current
from lakesink_protocol.coordinator import Write, run_batch
from lakesink_protocol.errors import BatchRefused, CommitUnresolved, Reason, WriteError
from lakesink_protocol.identity import SinkKey, SinkKind, stream_batch, transaction_batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Vote, Votes, receipts_of
from testkit import letters
from testkit.answers import first
from testkit.builders import TABLE, Chance, Lake, Stream, offered
from testkit.deaths import Killed, dies_before

LETTERS = f"{TABLE}__dead_letters"
ROWS = pa.schema([("id", pa.int64())])
OPTIONS = {"on_malformed": "quarantine", "max_dead_letter_ratio": 1.0}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    return Lake.make(tmp_path, schema=schema, properties={"commit.retry.num-retries": "1"})


def sink_of(lake: Lake, chance: Chance | None = None, **options: Any) -> IcebergSink:
    """The sink of a driver that has just started; it puts rows aside."""
    sink = Stream(lake, chance=chance or Chance()).sink(**OPTIONS, **options)
    sink.schema = ROWS
    return sink


def job_of(batch_id: int, meanwhile: Callable[[], object] = lambda: None) -> Write:
    """A job of one task over a row that fits and one that does not; something happens before its votes are counted."""

    def job(writers: Mapping[str, TaskWriter]) -> Votes:
        votes = _votes(writers, [{"id": batch_id}, {"id": None}])
        meanwhile()
        return votes

    return job


def _votes(writers: Mapping[str, TaskWriter], rows: list[dict[str, int | None]]) -> Votes:
    """Those of one task that wrote these rows."""
    [(name, writer)] = writers.items()
    batch = pa.RecordBatch.from_pylist(rows, schema=ROWS)
    return Votes(1, [Vote(0, receipts_of(name, writer, writer.write(0, iter([batch]))))])


def run(sink: IcebergSink, batch_id: int, meanwhile: Callable[[], object] = lambda: None) -> Outcome:
    batch = stream_batch(batch_id, "query-1", start=[batch_id], end=[batch_id + 1])
    return run_batch(batch, [sink], job_of(batch_id, meanwhile))[sink.name]


def rows_in(lake: Lake) -> list[int]:
    return sorted(lake.table().scan().to_arrow()["id"].to_pylist())


def letters_in(lake: Lake) -> list[int]:
    """The batches of the dead letters."""
    return sorted(lake.catalog.load_table(LETTERS).scan().to_arrow()["batch_id"].to_pylist())


def roll_back(lake: Lake, name: str = LETTERS) -> None:
    """To the snapshot before the newest one."""
    table = lake.catalog.load_table(name)
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
    roll_back(lake)
    with pytest.raises(BatchRefused) as refused:
        run(sink_of(lake), 2)
    assert refused.value.reason is Reason.ROLLED_BACK
    assert refused.value.what.startswith(f"{LETTERS}: The table of dead letters was rolled back")
    assert isinstance(run(sink_of(lake, accept=offered(refused.value)[does]), 2), Committed)
    assert rows_in(lake) == [0, 1, 2]
    assert letters_in(lake) == batches
    run(sink_of(lake), 3)
    assert letters_in(lake) == [*batches, 3]


def test_a_rollback_of_the_rows_names_the_letters_that_stayed_and_the_snapshot_before_them(lake: Lake) -> None:
    for batch_id in (0, 1, 2):
        run(sink_of(lake), batch_id)
    before = lake.catalog.load_table(LETTERS).snapshots()[-3].snapshot_id
    for _ in range(2):
        roll_back(lake, TABLE)
    with pytest.raises(BatchRefused) as refused:
        run(sink_of(lake), 3)
    assert refused.value.reason is Reason.ROLLED_BACK
    assert f"{LETTERS} still has dead letters of batches 1 to 2" in refused.value.data
    rewind, *accepts = refused.value.choices
    by = f"(`lakesink rewind` does this with `--table {TABLE}`.)"
    assert rewind.startswith(f"Roll {LETTERS} back to snapshot {before}. {by} Stop the stream, run `lakesink rewind")
    assert all(one.endswith(f"{LETTERS} keeps the dead letters of batches 1 to 2.") for one in accepts)
    assert "of others" not in refused.value.data
    assert len(str(refused.value).partition("\n")[0]) < 200
    roll_back(lake)
    roll_back(lake)
    assert lake.catalog.load_table(LETTERS).current_snapshot().snapshot_id == before  # type: ignore[union-attr] # it has one
    with pytest.raises(BatchRefused) as again:
        run(sink_of(lake), 3)
    assert "still has dead letters" not in again.value.data


def test_a_rollback_of_rows_without_letters_names_no_other_table(lake: Lake) -> None:
    sink = sink_of(lake)
    for batch_id in (0, 1):
        batch = stream_batch(batch_id, "query-1", start=[batch_id], end=[batch_id + 1])
        run_batch(batch, [sink], lambda writers: _votes(writers, [{"id": 1}]))
    roll_back(lake, TABLE)
    with pytest.raises(BatchRefused) as refused:
        run(sink_of(lake), 2)
    assert LETTERS not in str(refused.value)


def test_after_a_rollback_of_letters_and_rows_another_table_of_letters_is_a_way_out(lake: Lake) -> None:
    for batch_id in (0, 1):
        run(sink_of(lake), batch_id)
    roll_back(lake)
    roll_back(lake, TABLE)
    with pytest.raises(BatchRefused) as of_rows:
        run(sink_of(lake), 2)
    word = offered(of_rows.value)["commit"]
    with pytest.raises(BatchRefused, match="no accept overrules both") as of_letters:
        run(sink_of(lake, accept=word), 2)
    assert "dead_letter_table" in str(of_letters.value)
    assert isinstance(run(sink_of(lake, accept=word, dead_letter_table=f"{LETTERS}_2"), 2), Committed)
    assert rows_in(lake) == [0, 2]


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
    plan_for = SideTableSink.plan_for

    def later(self: SideTableSink, *of: Any) -> Any:
        monkeypatch.setattr(SideTableSink, "plan_for", plan_for)
        for batch_id in (1, 2):
            run(sink_of(lake), batch_id)
        return plan_for(self, *of)

    monkeypatch.setattr(SideTableSink, "plan_for", later)
    assert isinstance(run(sink, 1), AlreadyCommitted)
    assert (rows_in(lake), letters_in(lake)) == ([0, 1, 2], [0, 1, 2])


def _shown(lake: Lake, monkeypatch: pytest.MonkeyPatch, at: Mapping[int, Table], name: str = LETTERS) -> None:
    """From now on, some loads of a table get what it once was; the first load is number 1. Requests find what it is."""
    load, commit, count, requests = lake.catalog.load_table, lake.catalog.commit_table, 0, 0

    def load_table(identifier: Any) -> Table:
        nonlocal count
        if requests or Catalog.identifier_to_tuple(identifier) != Catalog.identifier_to_tuple(name):
            return load(identifier)
        count += 1
        return at.get(count) or load(identifier)

    def commit_table(*request: Any) -> CommitTableResponse:
        nonlocal requests
        requests += 1
        try:
            return commit(*request)
        finally:
            requests -= 1

    monkeypatch.setattr(lake.catalog, "load_table", load_table)
    monkeypatch.setattr(lake.catalog, "commit_table", commit_table)


def _dies(sink: IcebergSink, lake: Lake, batch_id: int, *, after_commits: int) -> None:
    lake.catalog.faults = [*[first(lambda: None)] * after_commits, dies_before]
    with pytest.raises(Killed):
        run(sink, batch_id)


def _letters_of_1_were_dropped(lake: Lake, chance: Chance | None = None) -> tuple[Table, Table]:
    """A driver died after the letters of batch 1, whose table was made anew; that table before and with the letters."""
    run(sink_of(lake), 0)
    before = lake.catalog.load_table(LETTERS)
    _dies(sink_of(lake, chance), lake, 1, after_commits=1)
    dropped = lake.catalog.load_table(LETTERS)
    _drop_and_make(lake)
    return before, dropped


def test_letters_in_a_table_that_was_dropped_are_not_taken_for_those_in_the_table(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, dropped = _letters_of_1_were_dropped(lake)
    _shown(lake, monkeypatch, {2: dropped})
    assert isinstance(run(sink_of(lake), 1), Committed)
    assert (rows_in(lake), letters_in(lake)) == ([0, 1], [1])


def test_a_run_that_was_planned_for_letters_in_a_dropped_table_is_started_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, dropped = _letters_of_1_were_dropped(lake)
    with monkeypatch.context() as patched:
        _shown(lake, patched, {1: dropped, 2: dropped})
        with pytest.raises(BatchRefused, match="Start the query again") as refused:
            run(sink_of(lake), 1)
    assert refused.value.reason is Reason.TABLE_REPLACED
    assert rows_in(lake) == [0]
    assert isinstance(run(sink_of(lake), 1), Committed)
    assert (rows_in(lake), letters_in(lake)) == ([0, 1], [1])


def test_a_catalog_whose_loads_stay_behind_stops_the_batch(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    _, dropped = _letters_of_1_were_dropped(lake)
    with monkeypatch.context() as patched:
        _shown(lake, patched, dict.fromkeys(range(100), dropped))
        with pytest.raises(CommitUnresolved, match="older state than it has"):
            run(sink_of(lake), 1)
    assert rows_in(lake) == [0]
    assert isinstance(run(sink_of(lake), 1), Committed)
    assert (rows_in(lake), letters_in(lake)) == ([0, 1], [1])


def test_recovered_letters_that_only_a_load_of_a_dropped_table_shows_are_written_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = Chance()  # time goes on from driver to driver: a record of the future is not used
    before, dropped = _letters_of_1_were_dropped(lake, chance)
    _shown(lake, monkeypatch, {1: before, 2: before, 3: before, 4: before, 5: dropped})
    assert isinstance(run(sink_of(lake, chance), 1), Committed)
    assert (rows_in(lake), letters_in(lake)) == ([0, 1], [1])


@pytest.mark.parametrize("behind", [(2,), (1, 2), (1, 2, 3)])
def test_letters_count_that_a_catalog_does_not_show(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, behind: tuple[int, ...]
) -> None:
    run(sink_of(lake), 0)
    before = lake.catalog.load_table(LETTERS)
    _dies(sink_of(lake), lake, 1, after_commits=1)
    _shown(lake, monkeypatch, dict.fromkeys(behind, before))
    sink, other = sink_of(lake), stream_batch(1, "query-1", start=[1], end=[3])
    with pytest.raises(WriteError, match="puts 0 rows aside, and its earlier run put other rows") as differ:
        run_batch(other, [sink], lambda writers: _votes(writers, [{"id": 1}, {"id": 2}]))
    assert differ.value.code == "LAKESINK_DEAD_LETTERS_DIFFER"
    assert rows_in(lake) == [0]


def test_only_the_first_batch_of_a_run_asks_for_letters_that_no_load_shows(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def is_current(*of: Any) -> bool:
        nonlocal asked
        asked += 1
        return current(*of)

    monkeypatch.setattr(side_sink, "is_current", is_current)
    sink = sink_of(lake)
    for batch_id in range(3):
        batch = stream_batch(batch_id, "query-1", start=[batch_id], end=[batch_id + 1])
        run_batch(batch, [sink], lambda writers: _votes(writers, [{"id": 1}]))
    assert asked == 1


def test_a_batch_that_the_table_refuses_leaves_no_letters(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lake.table()
    run(sink_of(lake), 0)
    other = stream_batch(0, "query-1", start=[0], end=[2])  # of a checkpoint that was restored
    _shown(lake, monkeypatch, {1: before}, TABLE)
    with pytest.raises(BatchRefused) as refused:
        run_batch(other, [sink_of(lake, dead_letter_table="demo.others")], job_of(0))
    assert refused.value.reason is Reason.BATCH_CHANGED
    assert lake.catalog.load_table("demo.others").current_snapshot() is None


def test_a_table_of_letters_that_changes_under_a_record_costs_no_new_checkpoint(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(sink_of(lake), 0)
    chance = Chance()
    _dies(sink_of(lake, chance), lake, 1, after_commits=0)
    prepared_for = lake.catalog.load_table(LETTERS)
    _drop_and_make(lake)
    _shown(lake, monkeypatch, {1: prepared_for, 2: prepared_for, 4: prepared_for})
    with pytest.raises(BatchRefused, match="Start the query again") as refused:
        run(sink_of(lake, chance), 1)
    assert refused.value.reason is Reason.TABLE_REPLACED
    assert "checkpoint" not in str(refused.value)
    assert isinstance(run(sink_of(lake), 1), Committed)
    assert (rows_in(lake), letters_in(lake)) == ([0, 1], [1])


@pytest.mark.usefixtures("home")
def test_an_expectation_that_fails_a_batch_is_named_also_beside_dead_letters() -> None:
    aside, fails = (Expected(name, on).mark for name, on in (("aged", OnUnmet.QUARANTINE), ("small", OnUnmet.FAIL)))
    rows = [{"id": 1, aside: False, fails: True}, {"id": 2, aside: False, fails: False}]
    settings = Settings.parse(letters.ANY, entry=Entry.APPEND)
    with pytest.raises(WriteError, match=r"EXPECTATION_UNMET.*1 of 2 rows .* the expectation small"):
        letters.append(
            pa.Table.from_pylist(rows),
            letters.TABLE,
            SinkKey("load", kind=SinkKind.TXN),
            transaction_batch(1),
            settings,
        )
    assert letters.rows(letters.LETTERS) == []
