"""Maintenance replaces files by others with the same rows, also while others write to the table."""

import errno
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from lakesink.keys.footers import opener
from lakesink.keys.keys_file import OpenInput
from lakesink.parquet.files import DataFiles
from lakesink.sinks.iceberg.upkeep import maintenance
from lakesink.sinks.iceberg.upkeep import rewrite as rewriting
from lakesink.sinks.iceberg.upkeep.choose import Group, Limits, choose, sizes
from lakesink.sinks.iceberg.upkeep.columns import converted
from lakesink.sinks.iceberg.upkeep.policy import Policy, Verify
from lakesink.sinks.iceberg.upkeep.reports import BUDGET, FAILED, NOTHING_DUE, REST, TURN
from lakesink.sinks.iceberg.upkeep.seen import plan_of
from lakesink_catalog.manifests import entries
from lakesink_catalog.manifests.avro_values import Malformed
from lakesink_catalog.manifests.live import LiveFiles
from lakesink_protocol import events
from lakesink_protocol.errors import CatalogError, SettingsError
from lakesink_protocol.ledger import COMPACTED, MAINTENANCE
from testkit.maintenance import roll_back
from testkit.tasks import local
from tests.faults.test_sort_orders import ordered_by
from tests.upkeep.lake import TARGET, Kept, equality_delete, files_of, rows

BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
FEW = Policy(target_file_size=TARGET, min_input_files=2)


def of_files(folder: Path, count: int = 6, **make: Any) -> Kept:
    """A table of so many small files."""
    kept = Kept.make(folder, **make)
    for number in range(count):
        kept.table.append(rows(number * 100, 100, "ab"[number % 2]))
    return kept


def test_small_files_become_one_with_the_same_rows_in_a_snapshot_that_says_so(tmp_path: Path) -> None:
    kept = of_files(tmp_path)
    before, head = kept.rows(), kept.lake.head()
    report = kept.maintenance().run()
    assert (kept.rows(), kept.rows(head.snapshot_id)) == (before, before)
    [done], [file] = report.groups, kept.live().data
    assert (done.files, done.into, done.rows, done.dropped, done.carried) == (6, 1, 600, 0, 0)
    assert done.bytes_after == file.file_size_bytes < done.bytes_before
    summary = kept.lake.head().summary
    assert summary is not None
    assert summary.operation is Operation.REPLACE
    assert summary[COMPACTED] == "maintenance"
    assert '"files":6,"into":1,"rows":600' in (summary[MAINTENANCE] or "")
    assert '"verified":"digest"' in (summary[MAINTENANCE] or "")
    assert (report.before.files, report.after.files, report.ended) == (6, 1, NOTHING_DUE)
    assert kept.maintenance().run().groups == ()


def test_a_look_says_what_a_run_then_does_and_writes_nothing(tmp_path: Path) -> None:
    kept = of_files(tmp_path, spec=BY_PART)
    kept.delete(lambda row: row["id"] < 50)
    files, head = files_of(kept), kept.lake.head()
    plan = kept.maintenance().look()
    assert (files_of(kept), kept.lake.head()) == (files, head)
    report = kept.maintenance().run()
    assert sorted((one.partition, one.files) for one in plan.groups) == [("part=a", 3), ("part=b", 3)]
    assert sorted((one.partition, one.files) for one in report.groups) == [("part=a", 3), ("part=b", 3)]
    assert plan.health == report.before
    for figure in ("files", "small_files", "rows", "deleted_rows"):
        assert getattr(plan.expected, figure) == getattr(report.after, figure)


@pytest.mark.parametrize("verify", list(Verify))
def test_deleted_rows_are_not_written_again_and_their_delete_files_end(tmp_path: Path, verify: Verify) -> None:
    kept = of_files(tmp_path)
    gone = kept.delete(lambda row: row["id"] % 3 == 0)
    [done] = kept.maintenance(Policy(TARGET, verify=verify)).run().groups
    assert (done.dropped, done.rows) == (gone, 600 - gone)
    assert kept.checked == 1
    assert kept.live().deletes == ()


def test_rows_that_are_deleted_between_the_rewrite_and_its_commit_stay_deleted(tmp_path: Path) -> None:
    kept = of_files(tmp_path)
    kept.delete(lambda row: row["id"] % 7 == 0)
    kept.before_commit = [lambda: kept.delete(lambda row: row["id"] % 7 == 1)]
    [done] = kept.maintenance().run().groups
    left = [number for number in range(600) if number % 7 > 1]
    assert sorted(row["id"] for row in kept.rows()) == left
    assert (done.dropped, done.carried) == (86, 86)
    assert kept.maintenance().run().groups == ()
    assert sorted(row["id"] for row in kept.rows()) == left


def test_deletes_are_carried_into_each_partition_of_an_older_specs_file(tmp_path: Path) -> None:
    """Its rows are in another order, and in several files."""
    kept = Kept.make(tmp_path)
    mixed = pa.concat_tables(rows(number * 10, 10, "abc"[number % 3]) for number in range(30))
    kept.table.append(mixed)
    with kept.table.update_spec() as change:
        change.add_identity("part")
    kept.delete(lambda row: row["id"] % 11 == 0)
    kept.before_commit = [lambda: kept.delete(lambda row: row["id"] % 11 == 5)]
    [done] = kept.maintenance().run().groups
    assert (done.into, done.carried) == (3, 27)
    assert sorted(row["id"] for row in kept.rows()) == [number for number in range(300) if number % 11 not in (0, 5)]
    assert {file.spec_id for file in kept.live().data} == {1}


@pytest.mark.parametrize("order", [0, 1])
def test_an_older_specs_file_of_many_partitions_becomes_one_file_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: int
) -> None:
    """A writer has few files open at once, and the rows of the partitions come in any order."""
    monkeypatch.setattr(rewriting, "CHUNK_BYTES", 4_000)
    monkeypatch.setattr(rewriting, "_AT_ONCE_BYTES", 4_000)
    real = plan_of
    monkeypatch.setattr(maintenance, "plan_of", lambda *given: replace(real(*given), open_files=4))
    kept = Kept.make(tmp_path)
    ids = random.Random(order).sample(range(3_000), 3_000)
    kept.table.append(pa.table({"id": ids, "part": [f"p{one % 30}" for one in ids], "v": ["value"] * 3_000}))
    if order:
        ordered_by(kept.table, "id")
    with kept.table.update_spec() as change:
        change.add_identity("part")
    kept.before_commit = [lambda: kept.delete(lambda row: row["id"] % 7 == 0)]
    [done] = kept.maintenance().run().groups
    assert (done.into, done.carried) == (30, 429)
    paths = [local(one.path) for one in kept.live().data]
    live = duckdb.execute("from read_parquet($1) order by id", [paths]).fetchall()
    assert live == [(one, f"p{one % 30}", "value") for one in range(3_000)]
    assert [row["id"] for row in kept.table.scan().to_arrow().sort_by("id").to_pylist()] == [
        one for one in range(3_000) if one % 7
    ]
    for file in kept.table.inspect.data_files().to_pylist():
        found = pq.read_table(local(file["file_path"])).column("id").to_pylist()
        assert file["sort_order_id"] == order
        assert not order or found == sorted(found, reverse=True)


def test_a_group_of_which_another_writer_has_taken_a_file_is_lost_and_the_next_one_goes_on(tmp_path: Path) -> None:
    kept = of_files(tmp_path, spec=BY_PART)
    kept.before_commit = [lambda: kept.table.delete("id < 50")]
    report = kept.maintenance().run()
    assert len(report.groups) == kept.checked == 1
    assert {one.reason for one in report.left} == {"lost: another writer was quicker"}
    assert [type(event) for event in kept.told].count(events.GroupLost) == 1
    assert sorted(row["id"] for row in kept.rows()) == list(range(50, 600))


def test_files_that_another_maintenance_has_replaced_meanwhile_are_not_named_as_left(tmp_path: Path) -> None:
    """They are no longer due, so that a lost race alone is no exit code 1."""
    kept = of_files(tmp_path)
    kept.before_commit = [lambda: kept.table.overwrite(kept.table.scan().to_arrow())]
    report = kept.maintenance().run()
    assert (report.groups, report.left, len(kept.live().data)) == ((), (), 1)
    assert [type(event) for event in kept.told].count(events.GroupLost) == 1


@pytest.mark.parametrize("what", ["column", "spec"])
def test_a_group_is_lost_when_the_tables_columns_change_meanwhile(tmp_path: Path, what: str) -> None:
    kept = of_files(tmp_path)

    def change() -> None:
        if what == "column":
            with kept.table.update_schema() as schema:
                schema.add_column("new", StringType())
        else:
            with kept.table.update_spec() as spec:
                spec.add_identity("part")

    kept.before_commit = [change]
    assert kept.maintenance().run().groups == ()
    assert len(kept.maintenance().run().groups) >= 1
    assert len(kept.rows()) == 600


def test_a_rollback_meanwhile_brings_no_deleted_row_back_and_ends_none(tmp_path: Path) -> None:
    kept = of_files(tmp_path)
    before, rows_before = kept.lake.head().snapshot_id, kept.rows()
    kept.delete(lambda row: row["id"] < 30)
    kept.before_commit = [lambda: roll_back(kept.lake, before)]
    report = kept.maintenance().run()
    assert {one.reason for one in report.left} == {"lost: deleted rows came back"}
    assert kept.rows() == rows_before


def test_a_file_that_the_table_lists_twice_stays_with_its_deleted_rows(tmp_path: Path) -> None:
    kept = of_files(tmp_path, 3)
    twice = next(iter(kept.table.scan().plan_files())).file
    with kept.table.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(twice)
    kept.delete(lambda row: row["id"] % 2 == 0)
    before = kept.rows()
    report = kept.maintenance().run()
    assert [one.reason.partition(":")[0] for one in report.left] == ["twice"]
    assert (report.groups[0].files, kept.checked) == (2, 1)
    assert kept.rows() == before


def test_a_file_that_is_added_again_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    kept = of_files(tmp_path)

    def add_again() -> None:
        file = next(iter(kept.table.scan().plan_files())).file
        with kept.table.transaction() as change, change.update_snapshot().fast_append() as append:
            append.append_data_file(file)

    kept.before_commit = [add_again]
    report = kept.maintenance().run()
    assert {one.reason for one in report.left} >= {"lost: another writer was quicker"}
    assert len(kept.rows()) == 700


def test_files_with_equality_deletes_stay_and_are_named(tmp_path: Path) -> None:
    kept = of_files(tmp_path, 3)
    kept.is_readable = False  # PyIceberg does not know them
    equality_delete(kept, [5, 105])
    for number in range(3, 6):
        kept.table.append(rows(number * 100, 100))
    report = kept.maintenance().run()
    assert [one.reason.partition(":")[0] for one in report.left] == ["equality-deletes"] * 3
    [done] = report.groups
    assert done.files == 3
    assert len(kept.live().equality) == 1


def test_equality_deletes_that_come_meanwhile_make_a_group_lost(tmp_path: Path) -> None:
    kept = of_files(tmp_path)
    kept.before_commit = [lambda: equality_delete(kept, [5])]
    report = kept.maintenance().run()
    assert report.groups == ()
    assert {one.reason.partition(":")[0] for one in report.left} == {"lost"}
    assert len(kept.live().data) == 6


@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("fault", [TimeoutError("no answer"), CommitFailedException("moved")], ids=["unknown", "lost"])
def test_a_commit_without_an_answer_or_with_a_no_leaves_the_rows(
    tmp_path: Path, fault: Exception, *, lands: bool
) -> None:
    kept = of_files(tmp_path)
    before = kept.rows()

    def fails(apply: Any) -> Any:
        if lands:
            apply()
        raise fault

    kept.lake.catalog.faults = [fails]
    report = kept.maintenance().run()
    assert kept.rows() == before
    is_known = isinstance(fault, CommitFailedException) or lands
    assert len(kept.live().data) == (1 if is_known else 6)
    assert bool(report.groups) == (lands != isinstance(fault, CommitFailedException))
    if not is_known:
        assert {one.reason.partition(":")[0] for one in report.left} == {"unknown"}
    assert files_of(kept) >= {file.path for file in kept.live().data}


@pytest.mark.parametrize("count", [1, 6], ids=["nothing else", "a group"])
def test_a_merge_of_manifests_that_fails_hides_no_group_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    kept = of_files(tmp_path, count)
    before = kept.rows()

    def fail(*_: Any) -> NoReturn:
        raise OSError("the storage is away")

    monkeypatch.setattr(maintenance, "manifests_under", fail)
    report = kept.maintenance().run()
    assert (len(report.groups), report.ended, report.after.files) == (int(count > 1), FAILED, 1)
    [left] = report.left
    assert left.path.endswith(".metadata.json")
    assert left.reason == "failed: OSError: the storage is away"
    assert [one.trouble for one in kept.told if isinstance(one, events.GroupFailed)] == ["OSError: the storage is away"]
    assert kept.rows() == before


def test_a_merge_of_manifests_without_an_answer_is_told(tmp_path: Path) -> None:
    kept = of_files(tmp_path, 7, properties={"commit.manifest.min-count-to-merge": "3"})
    before = kept.rows()

    def no_answer(_: Any) -> NoReturn:
        raise TimeoutError("no answer")

    kept.lake.catalog.faults = [no_answer]
    report = kept.maintenance(Policy(TARGET, min_input_files=99)).run()
    assert (report.groups, report.ended, kept.rows()) == ((), FAILED, before)
    assert [one.reason for one in report.left] == ["unknown: TimeoutError: no answer"]


def test_an_error_after_a_group_was_committed_does_not_hide_the_group(tmp_path: Path) -> None:
    kept = of_files(tmp_path)
    one = kept.maintenance()

    def load() -> Any:
        if kept.checked:
            raise OSError("the catalog is away")
        return kept.lake.table()

    one.load = load
    report = one.run()
    assert (len(report.groups), report.ended, report.after.files) == (1, FAILED, 1)
    assert [left.reason for left in report.left] == ["failed: OSError: the catalog is away"]


def test_two_maintenances_do_not_replace_a_file_twice_and_one_skips(tmp_path: Path) -> None:
    kept = of_files(tmp_path, 8, spec=BY_PART)
    before, other = kept.rows(), Kept(kept.lake)
    kept.before_commit = [lambda: other.maintenance().run()]
    report = kept.maintenance().run()
    assert (report.groups, report.ended) == ((), TURN)
    assert kept.rows() == before
    assert len(kept.live().data) == 2


def test_a_proof_that_fails_keeps_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, real = of_files(tmp_path), DataFiles.write
    before = kept.rows()

    def spoilt(self: Any, partition: Any, table: pa.Table) -> None:
        ids = table["id"].combine_chunks()
        real(self, partition, table.set_column(0, table.schema.field(0), pa.concat_arrays([ids[1:], ids[:1]])))

    monkeypatch.setattr(DataFiles, "write", spoilt)
    report = kept.maintenance().run()
    assert report.groups == ()
    assert {one.reason.partition(":")[0] for one in report.left} == {"proof"}
    assert kept.rows() == before
    assert [event.severity for event in kept.told if isinstance(event, events.GroupFailed)] == [events.WARNING]


def test_a_file_whose_values_are_read_as_null_stays_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, real = of_files(tmp_path), converted
    before, [bad] = kept.rows(), [file.path for file in kept.live().data if file.sequence_number == 2]

    def misread(batch: pa.RecordBatch, *given: Any) -> pa.RecordBatch:
        found = real(batch, *given)
        if found["id"][0].as_py() != 100:  # of the second file
            return found
        values = pa.array([None, *found["v"].to_pylist()[1:]], pa.string())
        return pa.RecordBatch.from_arrays([*found.columns[:2], values], schema=found.schema)

    monkeypatch.setattr(rewriting, "converted", misread)
    for _ in range(2):
        one = kept.maintenance()
        report = one.run()
        assert [(left.path, left.reason) for left in report.left] == [
            (bad, "proof: 0 NULLs of a column were read as 1")
        ]
        assert (kept.rows(), {file.path for file in kept.live().data} > {bad}) == (before, True)
        assert len(kept.live().data) == 2
    assert one.run().groups == ()


def test_a_condition_chooses_partitions_by_present_names(tmp_path: Path) -> None:
    kept = of_files(tmp_path, spec=BY_PART)
    with kept.table.update_schema() as change:
        change.rename_column("part", "section")
    with kept.table.update_spec() as spec:
        spec.rename_field("part", "area")
    maintenance = kept.maintenance(Policy(TARGET, min_input_files=2, where="section = 'b'"))
    assert [one.partition.rpartition("=")[2] for one in maintenance.run().groups] == ["b"]
    for wrong in ("part = 'b'", "id = 1", "section = ", "nonsense"):
        with pytest.raises(SettingsError, match="OPTION_INVALID"):
            kept.maintenance(Policy(where=wrong)).look()


def test_without_a_budget_one_file_of_a_partition_is_small_at_most_and_none_is_too_large(tmp_path: Path) -> None:
    kept = Kept.make(tmp_path, spec=BY_PART)
    start = 0
    for number in range(12):
        kept.table.append(rows(start, 4_000 + 3_000 * number, "ab"[number % 2]))
        start += 4_000 + 3_000 * number
    for target in (200_000, 500_000, 900_000):
        kept.maintenance(Policy(target, min_input_files=2)).run()
        sizes = [(file.partition, file.file_size_bytes / target) for file in kept.live().data]
        assert max(size for _, size in sizes) <= 1.25
        small = [partition for partition, size in sizes if size < 0.75]
        assert len(small) == len(set(small))
        assert kept.maintenance(Policy(target, min_input_files=2)).run().groups == ()
    assert len(kept.rows()) == start


def test_a_budget_ends_a_run_and_later_runs_do_the_rest(tmp_path: Path) -> None:
    kept = of_files(tmp_path, 12, spec=BY_PART)
    maintenance = kept.maintenance(Policy(TARGET, min_input_files=2, budget=timedelta(seconds=1)))
    clock = iter(range(0, 100_000, 200))
    maintenance.effects = replace(maintenance.effects, monotonic_ms=lambda: next(clock))
    ends = [maintenance.run() for _ in range(3)]
    assert [one.ended for one in ends] == [BUDGET, NOTHING_DUE, NOTHING_DUE]
    assert [len(one.groups) for one in ends] == [1, 1, 0]


def test_the_first_group_is_tried_whatever_the_budget(tmp_path: Path) -> None:
    """How long it takes is only a guess before, and a guess would hold up all maintenance for ever."""
    kept = of_files(tmp_path, 12, spec=BY_PART)
    maintenance = kept.maintenance(Policy(TARGET, min_input_files=2, budget=timedelta(milliseconds=1)))
    clock = iter(range(0, 100_000, 200))
    maintenance.effects = replace(maintenance.effects, monotonic_ms=lambda: next(clock) // 1000)
    report = maintenance.run()
    assert (len(report.groups), report.ended) == (1, BUDGET)


def test_a_stream_rests_after_runs_that_failed(tmp_path: Path) -> None:
    kept = of_files(tmp_path)
    maintenance = kept.maintenance(replace(FEW, min_input_files=3, budget=timedelta(minutes=1)))
    kept.before_commit = [lambda: kept.table.delete("id < 10")]
    assert maintenance.run().groups == ()
    assert [maintenance.run().ended for _ in range(3)] == [REST, REST, NOTHING_DUE]
    assert len(kept.live().data) == 1
    assert [maintenance.run().ended for _ in range(4)] == [NOTHING_DUE, REST, REST, NOTHING_DUE]  # 3 files are due
    assert replace(maintenance, policy=FEW).run().ended == NOTHING_DUE  # the end of a query waits for nothing


def test_files_of_a_table_that_was_upgraded_stay_until_another_engine_writes_them(tmp_path: Path) -> None:
    kept = of_files(tmp_path, 3, properties={"format-version": "1"})
    with kept.table.transaction() as change:
        change.upgrade_table_version(2)
    for number in range(3, 6):
        kept.table.append(rows(number * 100, 100))
    report = kept.maintenance().run()
    assert [one.reason.partition(":")[0] for one in report.left] == ["version-1"] * 3
    assert (report.groups[0].files, len(kept.rows())) == (3, 600)


def test_tables_of_other_format_versions_are_refused_by_name(tmp_path: Path) -> None:
    kept = of_files(tmp_path, 1, properties={"format-version": "1"})
    with pytest.raises(CatalogError, match="format version 1"):
        kept.maintenance().run()


def test_a_file_that_could_not_be_opened_once_is_tried_again_by_the_same_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many open files say nothing of a file: the memory of a stream lives as long as its query."""
    kept = of_files(tmp_path)
    before, away = kept.rows(), {kept.live().data[2].path}

    def fails_once(table: Table) -> OpenInput:
        def opened(path: str) -> Any:
            if path in away:
                away.remove(path)
                raise OSError(errno.EMFILE, "Too many open files")
            return opener(table)(path)

        return opened

    monkeypatch.setattr(maintenance, "opener", fails_once)
    stream = kept.maintenance()
    first, second = stream.run(), stream.run()
    assert [one.reason.partition(":")[0] for one in first.left] == ["failed"]
    assert ([one.files for one in first.groups], [one.files for one in second.groups]) == ([5], [2])
    assert (second.left, kept.rows()) == ((), before)


def test_an_open_file_is_removed_if_what_reads_beside_the_writing_ends(tmp_path: Path) -> None:
    """It is removed at once, even if the caller keeps the error and its traceback."""
    kept = of_files(tmp_path)
    one = kept.maintenance()
    seen, before = one.see(), set(tmp_path.rglob("*.parquet"))
    [group], _ = seen.choose({})
    work = seen.work(group, one.memory.deletes)
    work = replace(work, plan=replace(work.plan, target_file_size_bytes=2_000))

    def has_no_thread(write: Callable[[Any], None], parts: Iterable[Any]) -> Iterator[None]:
        yield next(map(write, parts))
        raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError, match="thread") as kept_error:
        rewriting.rewrite(work, opener(kept.table), beside=has_no_thread)
    new = set(tmp_path.rglob("*.parquet")) - before
    assert sum(pq.read_metadata(path).num_rows for path in new) in range(1, 600), kept_error


def test_a_file_is_not_closed_after_rows_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = of_files(tmp_path)
    before, calls, write = set(tmp_path.rglob("*.parquet")), iter(range(6)), DataFiles.write

    def fails_for_the_last(files: DataFiles, partition: Any, rows: pa.Table) -> None:
        if next(calls) == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(files, partition, rows)

    monkeypatch.setattr(rewriting, "CHUNK_BYTES", 1)
    monkeypatch.setattr(DataFiles, "write", fails_for_the_last)
    report = kept.maintenance().run()
    assert ({one.reason.partition(":")[0] for one in report.left}, report.groups) == ({"failed"}, ())
    assert set(tmp_path.rglob("*.parquet")) == before


def test_an_unreadable_file_stays_alone(tmp_path: Path) -> None:
    kept = of_files(tmp_path)
    kept.is_readable = False  # nor can PyIceberg read it
    path = Path(kept.live().data[0].path.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-1] + b"X")
    maintenance = kept.maintenance()
    report = maintenance.run()
    assert [one.reason.partition(":")[0] for one in report.left] == ["unreadable"]
    assert [one.files for one in report.groups] == [5]
    assert maintenance.run().groups == ()


def test_nothing_that_a_snapshot_references_is_removed_and_branches_are_apart(tmp_path: Path) -> None:
    kept = of_files(tmp_path)
    kept.table.manage_snapshots().create_branch(kept.lake.head().snapshot_id, "other").commit()
    files, before = files_of(kept), kept.rows()
    kept.maintenance().run()
    assert files_of(kept) >= files
    assert [kept.rows(one.snapshot_id) for one in kept.table.metadata.snapshots][-1] == before
    assert len(list(kept.table.scan(snapshot_id=kept.table.metadata.refs["other"].snapshot_id).plan_files())) == 6


def test_delete_files_of_several_data_files_end_when_nothing_needs_them(tmp_path: Path) -> None:
    kept = of_files(tmp_path, spec=BY_PART)
    kept.delete(lambda row: row["id"] % 10 == 0, together=True)
    before = kept.rows()
    assert {file.referenced_data_file for file in kept.live().deletes} == {""}
    kept.maintenance().run()
    assert (kept.live().deletes, kept.rows()) == ((), before)
    assert kept.maintenance().run().groups == ()
    assert pq.ParquetFile(kept.live().data[0].path.removeprefix("file://")).metadata.num_rows < 300


def test_a_file_that_others_deletes_only_seem_to_concern_is_not_rewritten_again_and_again(tmp_path: Path) -> None:
    """A delete file of a whole partition does not say in its manifest whose rows it deletes."""
    kept = of_files(tmp_path, 2)
    kept.table.append(rows(200, 20_000))
    kept.delete(lambda row: row["id"] in (0, 150) or 1_000 <= row["id"] < 1_500, together=True)
    before, policy = kept.rows(), Policy(target_file_size=20_000, min_input_files=9)
    runs = [kept.maintenance(policy).run() for _ in range(3)]
    assert [len(one.groups) for one in runs][1:] == [0, 0]
    assert kept.rows() == before


def test_groups_that_took_long_once_are_tried_again(tmp_path: Path) -> None:
    """Otherwise a store that was slow for a minute would end the maintenance of a stream for ever."""
    kept = of_files(tmp_path)
    maintenance = kept.maintenance(Policy(TARGET, min_input_files=2, budget=timedelta(seconds=2)))
    maintenance.effects = replace(maintenance.effects, monotonic_ms=lambda: 0)
    maintenance.memory.pace.bytes_per_second, maintenance.memory.pace.is_guess = 2**20, False
    runs = [maintenance.run() for _ in range(6)]
    assert [one.ended for one in runs][::5] == [BUDGET, NOTHING_DUE]
    assert len(kept.live().data) == 1


def test_a_group_that_the_budget_does_not_allow_does_not_keep_smaller_ones(tmp_path: Path) -> None:
    kept = Kept.make(tmp_path, spec=BY_PART)
    for number in range(14):  # the larger group gains more
        kept.table.append(rows(number * 100, 100, "b" if number < 2 else "a"))
    maintenance = kept.maintenance(Policy(TARGET, min_input_files=2, budget=timedelta(seconds=2)))
    maintenance.effects = replace(maintenance.effects, monotonic_ms=lambda: 0)
    small, large = sorted(one.bytes for one in maintenance.look().groups)
    maintenance.memory.pace.bytes_per_second, maintenance.memory.pace.is_guess = 2 * 2**20 + (small + large) // 4, False
    report = maintenance.run()
    assert ([one.partition for one in report.groups], report.ended) == (["part=b"], BUDGET)


def test_files_that_cannot_be_read_do_not_keep_the_others_of_their_group(tmp_path: Path) -> None:
    """However many they are: a command that starts anew each night has no memory of them."""
    kept = of_files(tmp_path, 14)
    kept.is_readable = False  # nor can PyIceberg read them
    paths = [Path(file.path.removeprefix("file://")) for file in kept.live().data]
    paths[0].unlink()
    for path in paths[1:8]:
        content = path.read_bytes()
        path.write_bytes(content[:4] + bytes(20) + content[24:])  # a page; the footer is as it was
    report = kept.maintenance().run()
    assert [one.files for one in report.groups] == [6]
    assert [one.reason.partition(":")[0] for one in report.left] == ["unreadable"] * 8


def test_a_tag_is_no_branch_and_stays_where_it_is(tmp_path: Path) -> None:
    kept = of_files(tmp_path)
    kept.table.manage_snapshots().create_tag(kept.lake.head().snapshot_id, "release").commit()
    tag = kept.table.metadata.refs["release"]
    for name in ("release", "releases"):
        maintenance = kept.maintenance()
        maintenance.branch = name
        with pytest.raises(CatalogError, match=f"has no branch '{name}'"):
            maintenance.run()
    assert kept.table.metadata.refs["release"] == tag


def test_a_manifest_that_cannot_be_rewritten_is_no_other_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = of_files(tmp_path)

    def malformed(*_: Any) -> None:
        raise Malformed("an entry of another kind")

    monkeypatch.setattr(entries, "carry_over", malformed)
    [reason] = {one.reason for one in kept.maintenance().run().left}
    assert "another writer" not in reason
    assert "show its rows twice" in reason
    assert len(kept.rows()) == 600


def test_files_that_one_group_became_are_not_divided_again_and_again(tmp_path: Path) -> None:
    """Rows differ in size: equal numbers of them can become two small files, and would become the same again."""
    [file] = of_files(tmp_path, 1).live().data
    small = replace(file, file_size_bytes=int(0.6 * TARGET), sequence_number=5)
    same = replace(small, path="file:///b.parquet")
    newer = replace(small, path="file:///c.parquet", sequence_number=6)
    for files, due in (((small, same), []), ((small, same, newer), [3]), ((small, newer), [2])):
        groups, _ = choose(LiveFiles(files, ()), file.spec_id, Limits(TARGET, 2), {})
        assert [len(one.files) for one in groups] == due


def test_a_file_that_is_larger_than_the_target_becomes_several(tmp_path: Path) -> None:
    kept = Kept.make(tmp_path)
    texts = pa.array([random.Random(number).randbytes(8).hex() for number in range(20_000)])
    kept.table.append(rows(0, 20_000).set_column(2, "v", texts))
    before, [file] = kept.rows(), kept.live().data
    target = int(file.file_size_bytes / 1.2)
    assert kept.maintenance(replace(FEW, target_file_size=target)).run().groups == ()
    target = int(file.file_size_bytes / 2.6)
    assert kept.maintenance(replace(FEW, target_file_size=target, budget=timedelta(1))).run().groups == ()
    [done] = kept.maintenance(replace(FEW, target_file_size=target)).run().groups
    assert kept.rows() == before
    assert done.into == len(kept.live().data) > 1
    assert max(file.file_size_bytes for file in kept.live().data) <= 1.25 * target
    assert kept.maintenance(replace(FEW, target_file_size=target)).run().groups == ()


@pytest.mark.parametrize(("count", "into"), [(3_600, 1), (2_400, 0)], ids=["1,200 of 3,600", "800 of 2,400"])
def test_between_batches_a_file_with_many_deleted_rows_is_due_alone_unless_they_are_few(
    tmp_path: Path, count: int, into: int
) -> None:
    kept = Kept.make(tmp_path)
    kept.table.append(rows(0, count))
    kept.delete(lambda row: row["id"] % 3 == 0)
    report = kept.maintenance(replace(FEW, budget=timedelta(1))).run()
    assert (sum(group.into for group in report.groups), report.left) == (into, ())
    assert (report.after.deleted_rows > 0) == (into == 0)


def test_a_run_without_a_budget_merges_manifests_also_where_no_file_is_due(tmp_path: Path) -> None:
    kept = of_files(tmp_path, 7, properties={"commit.manifest.min-count-to-merge": "3"})
    before, many = kept.rows(), replace(FEW, min_input_files=100)
    assert kept.maintenance(replace(many, budget=timedelta(1))).run().after.manifests == 7
    report = kept.maintenance(many).run()
    assert (report.before.manifests, report.after.manifests, report.groups) == (7, 1, ())
    assert kept.rows() == before
    assert kept.lake.head().summary["lakesink.compacted"] == "maintenance"  # type: ignore[index] # PyIceberg writes one
    snapshots = len(kept.table.metadata.snapshots)
    assert kept.maintenance(many).run().after.manifests == 1
    assert len(kept.table.metadata.snapshots) == snapshots


def test_merges_that_do_not_fit_into_one_manifest_are_all_done_in_one_run(tmp_path: Path) -> None:
    properties = {"commit.manifest.min-count-to-merge": "2", "commit.manifest.target-size-bytes": "10000"}
    kept = of_files(tmp_path, 9, properties=properties)
    before, many = kept.rows(), replace(FEW, min_input_files=100)
    report = kept.maintenance(many).run()
    assert (report.before.manifests, report.after.manifests) == (9, 2)
    assert len(kept.table.metadata.snapshots) > 9 + 1
    assert (kept.rows(), kept.maintenance(many).run().after.manifests) == (before, 2)


def test_a_group_s_commit_merges_manifests_on_the_way(tmp_path: Path) -> None:
    kept = of_files(tmp_path, 3, properties={"commit.manifest.min-count-to-merge": "3"})
    for number in range(4):
        kept.table.append(rows(10_000 * (number + 1), 20_000))
    before = kept.rows()
    policy = Policy(target_file_size=20_000, min_input_files=3, budget=timedelta(1))
    maintenance = kept.maintenance(policy)
    report = maintenance.run()
    assert [group.files for group in report.groups] == [3]
    assert maintenance.memory.merges.snapshot_id == kept.lake.head().snapshot_id
    assert (report.before.manifests, report.after.manifests) == (7, 2)
    assert kept.rows() == before


def test_a_limit_divides_the_files_of_a_partition_into_groups_without_a_common_file(tmp_path: Path) -> None:
    [file] = of_files(tmp_path, 1).live().data
    files = tuple(replace(file, path=f"file:///{number}.parquet", sequence_number=number) for number in range(1, 41))
    for most in range(file.file_size_bytes, 12 * file.file_size_bytes, 7_000):
        groups, _ = choose(LiveFiles(files, ()), file.spec_id + 1, Limits(TARGET, 2, most), {})
        chosen = [one.path for group in groups for one in group.files]
        assert sorted(chosen) == sorted(one.path for one in files)


def test_a_table_that_wants_a_file_for_each_byte_gets_as_few_as_make_sense(tmp_path: Path) -> None:
    kept = of_files(tmp_path, properties={"write.target-file-size-bytes": "1"})
    before = kept.rows()
    [done] = kept.maintenance(Policy(min_input_files=2)).run().groups
    assert (done.into, kept.rows()) == (1, before)
    [file] = kept.live().data
    huge = replace(file, file_size_bytes=2**31, record_count=50_000_000)
    target_bytes = kept.maintenance(Policy(target_file_size=1)).see().target_bytes
    assert len(sizes(Group((huge,)).live_bytes, target_bytes)) < 2**17
