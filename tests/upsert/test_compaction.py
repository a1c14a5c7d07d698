"""A stream of changes maintains its table, and the rows of the table stay the same."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import StringType

from lakesink.keys import deleted_rows
from lakesink.sinks.iceberg.upkeep import choose
from lakesink.sinks.iceberg.upkeep.maintenance import Maintenance
from lakesink.sinks.iceberg.upkeep.policy import Policy
from lakesink.sinks.iceberg.upkeep.reports import Report
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol import events
from lakesink_protocol.ledger import COMPACTED
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import Lake, contents
from testkit.change_table import Change, ChangeStream, Reference, compactions, rows_of, upsert_lake
from testkit.deaths import Killed, dies_after, dies_before
from testkit.examples import seeds

ENOUGH_FILES = Policy().min_input_files
BY_DELETED_ROWS = {"maintenance": {"min_input_files": 1_000}}
"""Only files with many deleted rows are due."""
GROUP_ENDS = events.GroupReplaced, events.GroupLost, events.GroupFailed


def run_checked(stream: ChangeStream, reference: Reference, batches: range) -> None:
    """Run batches; the table equals the reference after each."""
    for number in batches:
        outcome = stream.run(number)
        assert isinstance(outcome, Committed)
        assert outcome.changes == reference.apply(stream.changes(number))
        assert rows_of(stream.lake) == reference.table


def data_files(table: Table) -> int:
    return len(list(table.scan().plan_files()))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[events.Event]:
    """What maintenances say."""
    found: list[events.Event] = []
    real = Maintenance.run

    def run(self: Maintenance) -> Report:
        self.effects = replace(self.effects, emit=self.effects.emit.also(found.append))
        return real(self)

    monkeypatch.setattr(Maintenance, "run", run)
    return found


@pytest.mark.parametrize("partitioned", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.soak
def test_a_table_keeps_few_files_and_the_rows_of_each_batch(tmp_path: Path, *, partitioned: bool) -> None:
    lake, reference = upsert_lake(tmp_path, partitioned=partitioned), Reference()
    stream = ChangeStream(lake, seed=1)
    before: dict[int, list[dict[str, Any]]] = {}
    for number in range(40):
        run_checked(stream, reference, range(number, number + 1))
        before[stream.snapshot_of(number)] = reference.table
    assert len(compactions(lake)) >= 3
    assert data_files(lake.table()) < 4 * ENOUGH_FILES
    assert {snapshot_id: rows_of(lake, snapshot_id) for snapshot_id in before} == before  # time travel


def test_a_compaction_changes_no_row_and_says_so(tmp_path: Path) -> None:
    lake, reference = upsert_lake(tmp_path), Reference()
    stream = ChangeStream(lake, seed=2)
    run_checked(stream, reference, range(30))
    for snapshot in compactions(lake):
        assert snapshot.summary is not None
        said, parent = snapshot.summary, lake.table().snapshot_by_id(snapshot.parent_snapshot_id or 0)
        assert parent is not None
        assert parent.summary is not None
        assert said.operation is Operation.REPLACE
        assert said[COMPACTED] == "lakesink.ledger.stream.events"
        assert live(said) == live(parent.summary)
        assert rows_of(lake, snapshot.snapshot_id) == rows_of(lake, parent.snapshot_id)
        assert int(said["total-data-files"] or 0) == len(
            list(lake.table().scan(snapshot_id=snapshot.snapshot_id).plan_files())
        )


def live(summary: Any) -> int:
    return int(summary["total-records"]) - int(summary["total-position-deletes"])


def test_no_file_that_a_snapshot_references_is_changed_or_removed(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    stream = ChangeStream(lake, seed=3).filled(12)
    there = {path: digest for path, digest in contents(lake).items() if path.suffix in (".parquet", ".avro")}
    for number in range(12, 40):
        stream.run(number)
    now = contents(lake)
    assert {path: now[path] for path in there} == there


@pytest.fixture
def of_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChangeStream:
    """A stream into a table of which no file is small."""
    monkeypatch.setattr(choose, "is_small", lambda *_: False)
    return ChangeStream(upsert_lake(tmp_path), options=BY_DELETED_ROWS)


def rows_of_files_after(stream: ChangeStream, number: int, keys: Iterable[int]) -> list[int]:
    """Run a batch with these keys; returns the number of rows of each data file."""
    stream.run_changes(number, [[Change(key, number, "a", "v", Decimal(number)) for key in keys]])
    return sorted(task.file.record_count for task in stream.lake.table().scan().plan_files())


def test_a_file_is_rewritten_when_three_tenths_of_its_rows_are_deleted_and_goes_when_all_are(
    of_large_files: ChangeStream,
) -> None:
    """Each batch has a driver that has just started."""
    run = partial(rows_of_files_after, of_large_files)

    assert run(0, range(100)) == [100]
    assert run(1, range(29)) == [29, 100]
    assert run(2, range(29, 30)) == [1, 29, 70]
    assert run(3, range(200, 201)) == [1, 1, 29, 70]
    assert run(4, range(29)) == [1, 1, 29, 70]
    versions = {row["id"]: row["version"] for row in rows_of(of_large_files.lake)}
    assert versions == dict.fromkeys(range(29), 4) | {29: 2, 200: 3} | dict.fromkeys(range(30, 100), 0)


def test_files_of_earlier_columns_get_the_present_ones(of_large_files: ChangeStream) -> None:
    stream, lake = of_large_files, of_large_files.lake
    rows_of_files_after(stream, 0, range(20))
    with lake.table().update_schema() as update:
        update.add_column("note", StringType())
    assert rows_of_files_after(stream, 1, range(12)) == [8, 12]
    assert {(row["id"], row["version"], row["note"]) for row in rows_of(lake)} == {
        (key, int(key < 12), None) for key in range(20)
    }


def test_positions_that_a_file_does_not_have_keep_no_file_from_being_rewritten(
    of_large_files: ChangeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer's delete file names them, and readers do not mind."""
    stream, lake = of_large_files, of_large_files.lake
    real = deleted_rows._rows  # noqa: SLF001

    def with_more(*given: Any) -> pa.Table:
        rows = real(*given)
        return pa.concat_tables([rows, rows.slice(0, 1).set_column(1, rows.schema.field(1), pa.array([50]))])

    run = partial(rows_of_files_after, stream)

    stream.options["maintenance"] = "off"
    run(0, range(10))
    run(1, range(6))
    monkeypatch.setattr(deleted_rows, "_rows", with_more)
    stream.options |= BY_DELETED_ROWS
    assert run(2, [20]) == [1, 4, 6]
    assert [row["id"] for row in rows_of(lake)] == [*range(10), 20]


def test_without_the_option_no_file_is_compacted(tmp_path: Path) -> None:
    lake, reference = upsert_lake(tmp_path), Reference()
    stream = ChangeStream(lake, seed=4, options={"maintenance": "off"})
    run_checked(stream, reference, range(15))
    assert compactions(lake) == []


@pytest.mark.parametrize(
    ("fault", "lands", "said"),
    [
        (CommitFailedException("the branch has moved"), False, events.GroupReplaced),  # on the next try
        (CommitFailedException("the branch has moved"), True, events.GroupLost),
        (TimeoutError("no answer"), False, events.GroupFailed),
        (TimeoutError("no answer"), True, events.GroupReplaced),
    ],
    ids=["lost race", "lost race of the same", "no answer", "no answer, and done"],
)
@pytest.mark.dear
def test_a_commit_that_fails_or_is_not_answered_is_looked_for_and_leaves_the_batch_and_the_rows(
    tmp_path: Path, told: list[events.Event], fault: Exception, said: type[events.Event], *, lands: bool
) -> None:
    lake, reference = upsert_lake(tmp_path), Reference()
    stream, hits = ChangeStream(lake, seed=5), 0
    number = 0
    while not hits:

        def is_hit(apply: Callable[[], Any]) -> Any:
            nonlocal hits
            hits += 1
            if lands:
                apply()
            raise fault

        lake.catalog.faults = [lambda apply: apply(), is_hit]
        run_checked(stream, reference, range(number, number + 1))
        number += 1
    ends = [type(event) for event in told if isinstance(event, GROUP_ENDS)]
    assert ends == [said]
    lake.catalog.faults = []
    run_checked(stream, reference, range(number, number + 10))
    assert len(compactions(lake)) > lands


@pytest.fixture(params=["small files", "files with deleted rows"])
def options(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is due. A stream leaves deleted rows in small files until they are many: of the latter, none is small."""
    if request.param == "small files":
        return {}
    monkeypatch.setattr(choose, "is_small", lambda *_: False)
    return {"maintenance": {"min_input_files": 2}}


@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.dear
def test_a_driver_that_dies_in_the_commit_of_a_compaction_repeats_no_batch(
    tmp_path: Path, seed: int, options: dict[str, Any], *, lands: bool
) -> None:
    lake, reference = upsert_lake(tmp_path, partitioned=seed % 2 == lands), Reference()
    stream, deaths = ChangeStream(lake, seed=10 + seed, options=options), 0
    for number in range(100):
        if number >= 14 and deaths >= 2:
            break
        lake.catalog.faults = [lambda apply: apply(), dies_after if lands else dies_before]
        try:
            stream.run(number)
        except Killed:
            deaths += 1
            assert isinstance(stream.run(number), AlreadyCommitted)
        lake.catalog.faults = []
        reference.apply(stream.changes(number))
        assert rows_of(lake) == reference.table
    assert deaths >= 2


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.dear
def test_other_writers_between_the_batches_and_within_a_compaction_lose_nothing(
    tmp_path: Path, seed: int, options: dict[str, Any]
) -> None:
    """They insert rows, delete some, and compact too; some come between the rewrite and its commit."""
    lake, reference = upsert_lake(tmp_path, partitioned=seed % 2 == bool(options)), Reference()
    stream, chance = ChangeStream(lake, seed=20 + seed, options=options), random.Random(seed)
    meanwhile = 0

    def disturbed(event: events.Event) -> None:
        nonlocal meanwhile
        if isinstance(event, events.GroupRewritten) and chance.random() < 0.5:
            meanwhile += 1
            disturb(lake, reference, chance)

    stream.listeners = LISTENERS.also(disturbed)
    for number in range(200):
        if number >= 24 and compactions(lake):
            break
        stream.run(number)
        reference.apply(stream.changes(number)) if not meanwhile else apply_first(stream, reference, lake, number)
        meanwhile = 0
        assert rows_of(lake) == reference.table
        if chance.random() < 0.1:
            disturb(lake, reference, chance)
            assert rows_of(lake) == reference.table
    assert compactions(lake)


def disturb(lake: Lake, reference: Reference, chance: random.Random) -> None:
    """Another writer deletes rows by a predicate, or writes all rows anew."""
    table = lake.table()
    if chance.random() < 0.5:
        table.delete(f"id < {chance.randrange(10)}")
    else:
        table.overwrite(table.scan().to_arrow())
    reference.rows = {row["id"]: reference.rows.get(row["id"], change_of(row)) for row in rows_of(lake)}


def change_of(row: dict[str, Any]) -> Change:
    return Change(row["id"], row["version"], row["part"], row["value"], row["amount"])


def apply_first(stream: ChangeStream, reference: Reference, lake: Lake, number: int) -> None:
    """The batch landed before the other writer came, who saw its rows."""
    reference.apply(stream.changes(number))
    there = {row["id"] for row in rows_of(lake)}
    reference.rows = {key: change for key, change in reference.rows.items() if key in there}


@pytest.mark.soak
def test_sinks_that_write_one_table_at_the_same_time_maintain_it_by_turns(
    tmp_path: Path, told: list[events.Event]
) -> None:
    lake = upsert_lake(tmp_path)

    def run(sink: int) -> None:
        catalog = connect(lake.catalog.name, dict(lake.catalog.properties))  # with turns, as that of another process
        stream = ChangeStream(lake, sink_id=f"sink-{sink}", query=f"query-{sink}", catalog=catalog)
        for number in range(25):
            stream.run_changes(number, [[Change(10 * sink + number % 3, number, "a", "v", Decimal(number))]])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    counts = Counter(type(event) for event in told)
    assert counts[events.GroupReplaced] >= 5
    assert counts[events.GroupFailed] == 0
    versions = {row["id"]: row["version"] for row in rows_of(lake)}
    assert versions == {10 * sink + number % 3: number for sink in range(4) for number in (22, 23, 24)}


def test_files_from_before_a_change_of_the_columns_are_compacted_too(tmp_path: Path) -> None:
    lake, reference = upsert_lake(tmp_path), Reference()
    stream = ChangeStream(lake, seed=7, options={"maintenance": "off"})
    run_checked(stream, reference, range(12))
    with lake.table().update_schema() as update:
        update.add_column("note", StringType())
    stream.options["maintenance"] = "on"
    for number in range(12, 30):
        stream.run(number)
        reference.apply(stream.changes(number))
        assert [{**row, "note": None} for row in reference.table] == rows_of(lake)
    assert compactions(lake)


def test_a_file_that_is_gone_is_told_and_the_stream_goes_on(tmp_path: Path, told: list[events.Event]) -> None:
    lake = upsert_lake(tmp_path)
    stream = ChangeStream(lake, seed=8, options={"maintenance": "off"})
    for number in range(12):
        stream.run_changes(number, [[Change(number, 1, "a", "v", Decimal(1))]])
    gone = next(iter(lake.table().scan().plan_files())).file.file_path
    Path(gone.removeprefix("file://")).unlink()
    stream.options["maintenance"] = "on"
    outcome = stream.run_changes(12, [[Change(100, 1, "a", "v", Decimal(1))]])
    assert isinstance(outcome, Committed)
    [failed] = [event for event in told if isinstance(event, events.GroupFailed)]
    assert "cannot be read" in failed.trouble
    assert len(compactions(lake)) == 1  # of the others


def test_a_missing_file_of_one_partition_does_not_keep_others_from_being_compacted(
    tmp_path: Path, told: list[events.Event]
) -> None:
    lake = upsert_lake(tmp_path, partitioned=True)
    stream = ChangeStream(lake, seed=8, options={"maintenance": "off"})
    for number in range(12):
        parts = [Change(2 * number + at, 1, part, "v", Decimal(1)) for at, part in enumerate("ab")]
        stream.run_changes(number, [parts])
    gone = next(task.file for task in lake.table().scan().plan_files() if task.file.partition[0] == "a")
    Path(gone.file_path.removeprefix("file://")).unlink()
    stream.options["maintenance"] = "on"
    stream.run_changes(12, [[Change(100, 1, "b", "v", Decimal(1))]])
    assert len(compactions(lake)) == 2
    assert Counter(type(event) for event in told if isinstance(event, GROUP_ENDS)) == {
        events.GroupFailed: 1,
        events.GroupReplaced: 2,
    }
