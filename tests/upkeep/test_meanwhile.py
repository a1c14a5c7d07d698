"""An operator's change to a table has the same result with maintenance as without, during a rewrite and after it."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from lakesink.sinks.iceberg.upkeep.reports import FAILED
from lakesink_protocol import events
from lakesink_protocol.errors import CatalogError
from testkit.maintenance import branch_off, remove_ref, replace_table, roll_back
from tests.upkeep.lake import Kept, rows

BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """Three small files in a partition, and deleted rows."""
    kept = Kept.make(tmp_path, spec=BY_PART)
    for number in range(3):
        kept.table.append(rows(number * 10, 10))
    kept.delete(lambda row: row["id"] % 7 == 1)
    return kept


def snapshots(kept: Kept) -> list[int]:
    return [one.snapshot_id for one in kept.table.metadata.snapshots]


def back(kept: Kept) -> None:
    """To before the last file; its deletes go with it."""
    roll_back(kept.lake, snapshots(kept)[1])


def back_and_on_otherwise(kept: Kept) -> None:
    back(kept)
    kept.table.append(rows(50, 10))


def back_and_forth(kept: Kept) -> None:
    head = kept.lake.head().snapshot_id
    back(kept)
    roll_back(kept.lake, head)


def deletes_taken_back(kept: Kept) -> None:
    roll_back(kept.lake, snapshots(kept)[2])


def deletes_taken_back_and_others_made(kept: Kept) -> None:
    deletes_taken_back(kept)
    kept.delete(lambda row: row["id"] % 7 == 2)


def column_added(kept: Kept) -> None:
    with kept.table.update_schema() as change:
        change.add_column("new", StringType())


def column_dropped(kept: Kept) -> None:
    with kept.table.update_schema() as change:
        change.delete_column("v")


def column_made_anew(kept: Kept) -> None:
    """Another column of the same name: the old values are not its values."""
    column_dropped(kept)
    with kept.table.update_schema() as change:
        change.add_column("v", StringType())


def column_renamed_and_written(kept: Kept) -> None:
    with kept.table.update_schema() as change:
        change.rename_column("v", "w")
    kept.table.append(rows(60, 5).rename_columns(["id", "part", "w"]))


def partition_dropped(kept: Kept) -> None:
    with kept.table.update_spec() as change:
        change.remove_field("part")
    kept.table.append(rows(60, 5, "b"))


def table_replaced(kept: Kept) -> None:
    replace_table(kept.lake)
    kept.table.append(pa.table({name: [1, 2] for name in kept.table.schema().column_names}))


HAPPENS = (
    back,
    back_and_on_otherwise,
    back_and_forth,
    deletes_taken_back,
    deletes_taken_back_and_others_made,
    column_added,
    column_dropped,
    column_made_anew,
    column_renamed_and_written,
    partition_dropped,
    table_replaced,
)


@pytest.mark.parametrize("happens", HAPPENS, ids=lambda one: one.__name__)
def test_the_rows_are_those_that_the_operator_left(kept: Kept, happens: Callable[[Kept], None]) -> None:
    def act() -> None:
        happens(kept)
        wanted.append(kept.rows())

    wanted: list[object] = []
    kept.before_commit = [act]
    maintenance = kept.maintenance()
    report = maintenance.run()
    assert kept.rows() == wanted[0]
    kinds = [type(event) for event in kept.told]
    assert kinds.count(events.GroupReplaced) == len(report.groups) == kept.checked
    assert events.MaintenanceFailed not in kinds
    if happens is not back_and_forth:
        assert not report.groups
        assert {one.reason.partition(":")[0] for one in report.left} <= {"lost", "unknown", "failed"}
    kept.maintenance().run()
    assert kept.rows() == wanted[0]


def test_a_rollback_to_before_a_maintenance_and_to_after_it_shows_the_same_rows(kept: Kept) -> None:
    before, wanted = kept.lake.head().snapshot_id, kept.rows()
    [done] = kept.maintenance().run().groups
    kept.table.append(rows(90, 10))
    for goal in (before, done.snapshot_id, before):
        roll_back(kept.lake, goal)
        assert kept.rows() == wanted
        kept.maintenance().run()
        assert kept.rows() == wanted
        kept.delete(lambda row: row["id"] == 5)
        assert kept.rows() == [row for row in wanted if row["id"] != 5]


def becomes_a_tag(kept: Kept) -> None:
    remove_ref(kept.lake, "side")
    kept.table.manage_snapshots().create_tag(kept.lake.head().snapshot_id, "side").commit()


@pytest.mark.parametrize("is_tag", [False, True])
def test_a_branch_that_is_removed_meanwhile_does_not_come_back_nor_is_its_name_taken_from_a_tag(
    kept: Kept, *, is_tag: bool
) -> None:
    branch_off(kept.lake, "side")
    maintenance = kept.maintenance()
    maintenance.branch = "side"
    kept.before_commit = [lambda: becomes_a_tag(kept) if is_tag else remove_ref(kept.lake, "side")]
    before, wanted = kept.lake.head().snapshot_id, kept.rows()
    report = maintenance.run()
    assert (report.groups, report.ended) == ((), FAILED)
    reasons = {one.reason for one in report.left}
    assert any("LAKESINK_BRANCH_MISSING" in one for one in reasons)
    assert any(one.startswith("lost: ") for one in reasons)
    refs = {name: (ref.snapshot_ref_type, ref.snapshot_id) for name, ref in kept.table.metadata.refs.items()}
    assert refs == {"main": ("branch", before)} | ({"side": ("tag", before)} if is_tag else {})
    assert kept.rows() == wanted


def test_a_branch_that_is_removed_after_a_group_was_committed_hides_neither_the_group_nor_the_error(
    kept: Kept,
) -> None:
    kept.table.append(rows(90, 10, "b"))
    kept.table.append(rows(100, 10, "b"))
    branch_off(kept.lake, "side")
    maintenance = kept.maintenance()
    maintenance.branch = "side"
    kept.before_commit = [lambda: None, lambda: remove_ref(kept.lake, "side")]
    report = maintenance.run()
    [done] = report.groups
    assert (report.ended, report.before.files, report.after.files) == (FAILED, 5, 6 - done.files)
    assert {one.reason.partition(":")[0] for one in report.left} == {"lost", "failed"}
    assert not any("Nothing was written" in one.reason for one in report.left)


def test_a_name_that_is_a_tags_is_no_branch_and_the_hint_names_branches_only(kept: Kept) -> None:
    branch_off(kept.lake, "side")
    branch_off(kept.lake, "sides")
    becomes_a_tag(kept)
    maintenance = kept.maintenance()
    maintenance.branch = "side"
    with pytest.raises(CatalogError) as missing:
        maintenance.look()
    assert missing.value.action == "Did you mean 'sides'?"


@pytest.mark.parametrize("is_done", [False, True], ids=["before the next one", "after it"])
def test_a_commit_that_arrives_late_replaces_no_file_that_the_next_maintenance_has_replaced(
    kept: Kept, *, is_done: bool
) -> None:
    catalog, wanted = kept.lake.catalog, kept.rows()
    catalog.faults = [catalog.arrives_late]
    report = kept.maintenance().run()
    assert {one.reason.partition(":")[0] for one in report.left} == {"unknown"}
    [late] = catalog.late
    if is_done:
        assert kept.maintenance().run().groups
        with pytest.raises(CommitFailedException):
            late()
    else:
        late()
        assert not kept.maintenance().run().groups
    assert kept.rows() == wanted
    assert len(kept.live().data) == 1
