"""A stream of changes compacts its files, and the rows of the table stay the same."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
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

from lakesink.compact import choose
from lakesink.compact.choose import ENOUGH_FILES
from lakesink.keys import deleted_rows
from lakesink.sinks.iceberg.compaction import Compaction
from lakesink_catalog.connect.catalog import connect
from lakesink_protocol import events
from lakesink_protocol.ledger import COMPACTED
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import Lake, contents
from testkit.change_table import Change, ChangeStream, Reference, compactions, rows_of, upsert_lake
from testkit.deaths import Killed, dies_after, dies_before
from testkit.examples import seeds


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
    """What compactions say."""
    found: list[events.Event] = []
    real = Compaction.compact

    def compact(self: Compaction) -> None:
        self.effects.emit.also(found.append)
        object.__setattr__(self.effects, "emit", self.effects.emit.also(found.append))
        real(self)

    monkeypatch.setattr(Compaction, "compact", compact)
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
    assert data_files(lake.table()) < 3 * ENOUGH_FILES
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
    """A stream into a table whose files all count as large."""
    monkeypatch.setattr(choose, "SMALL_BYTES", 0)
    return ChangeStream(upsert_lake(tmp_path))


def rows_of_files_after(stream: ChangeStream, number: int, keys: Iterable[int]) -> list[int]:
    """Run a batch with these keys; returns the number of rows of each data file."""
    stream.run_changes(number, [[Change(key, number, "a", "v", Decimal(number)) for key in keys]])
    return sorted(task.file.record_count for task in stream.lake.table().scan().plan_files())


def test_a_larger_file_is_rewritten_when_half_of_its_rows_are_deleted_and_goes_when_all_are(
    of_large_files: ChangeStream,
) -> None:
    stream, lake = of_large_files, of_large_files.lake

    run = partial(rows_of_files_after, stream)

    assert run(0, range(100)) == [100]
    assert run(1, range(49)) == [49, 100]
    assert run(2, range(49, 50)) == [1, 49, 100]  # the next driver finds 50 of 100 rows deleted
    assert run(3, range(200, 201)) == [1, 1, 49, 50]
    assert run(4, range(49)) == [1, 1, 49, 49, 50]
    assert run(5, range(201, 202)) == [1, 1, 1, 49, 50]
    versions = {row["id"]: row["version"] for row in rows_of(lake)}
    assert versions == dict.fromkeys(range(49), 4) | {49: 2, 200: 3, 201: 5} | dict.fromkeys(range(50, 100), 0)


def test_files_of_other_columns_keep_no_others_from_being_rewritten_and_go_when_they_are_dead(
    of_large_files: ChangeStream,
) -> None:
    """Each batch has a driver that has just started."""
    stream, lake = of_large_files, of_large_files.lake

    run = partial(rows_of_files_after, stream)

    run(0, range(100, 120))
    with lake.table().update_schema() as update:
        update.add_column("note", StringType())
    run(1, range(200, 230))
    assert run(2, [*range(100, 112), *range(200, 216)]) == [20, 28, 30]
    assert run(3, [300]) == [1, 14, 20, 28]  # the 30 rows with the present columns, of which 16 were deleted
    assert run(4, range(112, 120)) == [1, 8, 14, 28]  # the file with other columns has no live row any more


def test_a_driver_that_could_not_rewrite_a_file_does_so_when_the_table_has_its_columns_again(
    of_large_files: ChangeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, lake = of_large_files, of_large_files.lake
    sink = stream.sink()
    monkeypatch.setattr(ChangeStream, "sink", lambda _: sink)

    run = partial(rows_of_files_after, stream)

    run(0, range(100, 120))
    with lake.table().update_schema() as update:
        update.add_column("note", StringType())
    run(1, range(100, 112))
    assert run(2, [200]) == [1, 12, 20]
    with lake.table().update_schema() as update:
        update.delete_column("note")
    assert run(3, [300]) == [1, 1, 8, 12]


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

    run(0, range(10))
    run(1, range(6))
    monkeypatch.setattr(deleted_rows, "_rows", with_more)
    assert run(2, [20]) == [1, 4, 6]
    assert [row["id"] for row in rows_of(lake)] == [*range(10), 20]


def test_without_the_option_no_file_is_compacted(tmp_path: Path) -> None:
    lake, reference = upsert_lake(tmp_path), Reference()
    stream = ChangeStream(lake, seed=4, options={"compact_small_files": False})
    run_checked(stream, reference, range(15))
    assert compactions(lake) == []


@pytest.mark.parametrize(
    ("fault", "lost"),
    [(CommitFailedException("the branch has moved"), True), (TimeoutError("no answer"), False)],
    ids=["lost race", "no answer"],
)
@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.dear
def test_a_commit_that_fails_or_is_not_answered_is_looked_for_and_leaves_the_batch_and_the_rows(
    tmp_path: Path,
    told: list[events.Event],
    fault: Exception,
    *,
    lost: bool,
    lands: bool,
) -> None:
    lake, reference = upsert_lake(tmp_path), Reference()
    stream = ChangeStream(lake, seed=5)
    number = 0
    while not any(isinstance(event, events.CompactionLost | events.ChangeUnknown) for event in told):

        def is_hit(apply: Callable[[], Any]) -> Any:
            if lands:
                apply()
            raise fault

        lake.catalog.faults = [lambda apply: apply(), is_hit]
        run_checked(stream, reference, range(number, number + 1))
        number += 1
    assert isinstance(
        told[-1], events.CompactionLost if lost else events.FilesCompacted if lands else events.CompactionFailed
    )
    lake.catalog.faults = []
    run_checked(stream, reference, range(number, number + 10))
    assert len(compactions(lake)) > lands


@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.usefixtures("what_is_compacted")
@pytest.mark.dear
def test_a_driver_that_dies_in_the_commit_of_a_compaction_repeats_no_batch(
    tmp_path: Path, seed: int, *, lands: bool
) -> None:
    lake, reference = upsert_lake(tmp_path, partitioned=seed % 2 == lands), Reference()
    stream, deaths = ChangeStream(lake, seed=10 + seed), 0
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


@pytest.fixture(params=[choose.SMALL_BYTES, 0], ids=["small files", "files with deleted rows"])
def what_is_compacted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files, or, as if all files were large, those of which half of the rows are deleted."""
    monkeypatch.setattr(choose, "SMALL_BYTES", request.param)


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.usefixtures("what_is_compacted")
@pytest.mark.dear
def test_other_writers_between_the_batches_and_within_a_compaction_lose_nothing(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They insert rows, delete some, and compact too; some come between the rewrite and its commit."""
    lake, reference = upsert_lake(tmp_path, partitioned=seed % 2 == bool(choose.SMALL_BYTES)), Reference()
    stream, chance = ChangeStream(lake, seed=20 + seed), random.Random(seed)
    real, meanwhile = Compaction._rewritten, 0  # noqa: SLF001

    def disturbed(self: Compaction, table: Table, *rest: Any) -> Any:
        nonlocal meanwhile
        found = real(self, table, *rest)
        if found[1] and chance.random() < 0.5:
            meanwhile += 1
            disturb(lake, reference, chance)
        return found

    monkeypatch.setattr(Compaction, "_rewritten", disturbed)
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
def test_sinks_that_write_one_table_at_the_same_time_do_not_lose_their_compactions(
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
    assert counts[events.FilesCompacted] >= 5
    assert counts[events.CompactionLost] == 0
    versions = {row["id"]: row["version"] for row in rows_of(lake)}
    assert versions == {10 * sink + number % 3: number for sink in range(4) for number in (22, 23, 24)}


def test_files_from_before_a_change_of_the_columns_stay_as_they_are(tmp_path: Path) -> None:
    lake, reference = upsert_lake(tmp_path), Reference()
    stream = ChangeStream(lake, seed=7, options={"compact_small_files": False})
    run_checked(stream, reference, range(12))
    with lake.table().update_schema() as update:
        update.add_column("note", StringType())
    stream.options["compact_small_files"] = True
    for number in range(12, 30):
        stream.run(number)
        reference.apply(stream.changes(number))
        assert [{**row, "note": None} for row in reference.table] == rows_of(lake)
    assert compactions(lake)


def test_a_file_that_is_gone_is_told_and_the_stream_goes_on(tmp_path: Path, told: list[events.Event]) -> None:
    lake = upsert_lake(tmp_path)
    stream = ChangeStream(lake, seed=8, options={"compact_small_files": False})
    for number in range(12):
        stream.run_changes(number, [[Change(number, 1, "a", "v", Decimal(1))]])
    gone = next(iter(lake.table().scan().plan_files())).file.file_path
    Path(gone.removeprefix("file://")).unlink()
    stream.options["compact_small_files"] = True
    outcome = stream.run_changes(12, [[Change(100, 1, "a", "v", Decimal(1))]])
    assert isinstance(outcome, Committed)
    [failed] = [event for event in told if isinstance(event, events.CompactionFailed)]
    assert "cannot be searched" in failed.trouble or "No such file" in failed.trouble
    assert compactions(lake) == []


def test_old_files_with_other_columns_do_not_make_each_new_driver_compact(tmp_path: Path) -> None:
    lake = upsert_lake(tmp_path)
    stream = ChangeStream(lake, seed=9, options={"compact_small_files": False})

    def run(number: int) -> None:
        stream.run_changes(number, [[Change(number, 1, "a", "v", Decimal(1))]])

    for number in range(ENOUGH_FILES - 1):
        run(number)
    with lake.table().update_schema() as update:
        update.add_column("note", StringType())
    stream.options["compact_small_files"] = True
    for number in range(ENOUGH_FILES - 1, 3 * ENOUGH_FILES):
        run(number)
    assert 1 <= len(compactions(lake)) <= 2  # of some twenty new files


def test_a_missing_file_of_one_partition_does_not_keep_others_from_being_compacted(
    tmp_path: Path, told: list[events.Event]
) -> None:
    lake = upsert_lake(tmp_path, partitioned=True)
    stream = ChangeStream(lake, seed=8, options={"compact_small_files": False})
    for number in range(12):
        parts = [Change(2 * number + at, 1, part, "v", Decimal(1)) for at, part in enumerate("ab")]
        stream.run_changes(number, [parts])
    gone = next(task.file for task in lake.table().scan().plan_files() if task.file.partition[0] == "a")
    Path(gone.file_path.removeprefix("file://")).unlink()
    stream.options["compact_small_files"] = True
    stream.run_changes(12, [[Change(100, 1, "b", "v", Decimal(1))]])
    assert len(compactions(lake)) == 1
    assert [type(event) for event in told if not isinstance(event, events.CompactionDue)] == [
        events.CompactionFailed,
        events.FilesCompacted,
    ]
