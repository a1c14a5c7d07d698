"""What an audit proves of a table whose rows are changed by key: no false finding, and none that is missed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent

from lakesink_tools.audit.audit import audit
from testkit.maintenance import edit_metadata, expire, expire_like_java, roll_back, sweep
from testkit.upserts import Upserts, local
from tests.audit.deletes import delete_by_position
from tests.audit.terminal import Run, found, terminal
from tests.audit.test_clean_histories import compact
from tests.audit.test_corruption import codes

JSON = ("--output", "json")
Story = Callable[[Upserts], object]


def fill(keyed: Upserts) -> None:
    """Batches that insert, update, delete, come late and are superseded."""
    keyed.run(0, {1: "a", 2: "b", 3: "c"})
    keyed.run(1, {2: "B", 4: "d"}, deletes=[1, 9])
    keyed.run(2, {3: "C", 2: "old"}, late=[2])
    keyed.run(3, {4: "D", 5: "e"}, superseded=[5])


@pytest.fixture
def keyed(tmp_path: Path) -> Upserts:
    keyed = Upserts.make(tmp_path)
    fill(keyed)
    return keyed


@pytest.fixture
def run(keyed: Upserts, monkeypatch: pytest.MonkeyPatch) -> Run:
    return terminal(keyed.lake, monkeypatch)


def test_the_helper_of_these_tests_writes_what_its_dictionary_says(keyed: Upserts) -> None:
    assert keyed.live() == keyed.rows == {2: "B", 3: "C", 4: "D", 5: "e"}


def untouched(_: Upserts) -> None:
    pass


def every_row_of_a_batch_deleted(keyed: Upserts) -> None:
    keyed.run(4, {}, deletes=[4, 5])


def no_change(keyed: Upserts) -> None:
    keyed.run(4, {}, deletes=[77])
    keyed.run(5, {})


def rows_of_another_writer(keyed: Upserts) -> None:
    table = keyed.lake.table()
    table.append(table.scan().to_arrow().slice(0, 1).set_column(0, table.schema().as_arrow().field(0), [[100]]))
    keyed.run(4, {5: "E"})


def deletes_of_another_writer(keyed: Upserts) -> None:
    path = next(iter(keyed.lake.table().scan().plan_files())).file.file_path
    delete_by_position(keyed.lake, path, [0])
    keyed.run(4, {6: "f"})


def compacted(keyed: Upserts) -> None:
    compact(keyed.lake)
    keyed.look_again()
    keyed.run(4, {5: "E"}, deletes=[2])


def compacted_and_expired(keyed: Upserts) -> None:
    compacted(keyed)
    expire(keyed.lake)
    sweep(keyed.lake)
    keyed.run(5, {5: "EE", 7: "g"})


def expired(keyed: Upserts) -> None:
    expire(keyed.lake)
    sweep(keyed.lake)
    keyed.run(4, {2: "BB"})


def expired_by_java(keyed: Upserts) -> None:
    expire_like_java(keyed.lake)
    keyed.run(4, {2: "BB"})


STORIES: list[Story] = [
    untouched,
    every_row_of_a_batch_deleted,
    no_change,
    rows_of_another_writer,
    deletes_of_another_writer,
    compacted,
    compacted_and_expired,
    expired,
    expired_by_java,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_replaced_deleted_late_and_superseded_rows_are_no_finding(keyed: Upserts, story: Story) -> None:
    story(keyed)
    proof = audit(keyed.lake.table())
    assert codes(proof) == []
    assert proof.unchecked == 0


def test_rows_that_later_batches_replaced_are_said_to_be_replaced_and_not_lost(keyed: Upserts, run: Run) -> None:
    proof = audit(keyed.lake.table())
    [sink] = proof.sinks
    assert sink.changes is not None
    assert (sink.changes.inserted, sink.changes.updated, sink.changes.deleted) == (5, 3, 1)
    assert (sink.batches, sink.rows) == (4, 10)
    said = (
        "note: keyed into main: The changes by key: 5 inserted, 3 updated, 1 deleted, 1 late, 1 absent, 1 superseded."
        " They replaced or removed 4 rows of earlier snapshots: these are not lost."
    )
    assert said in run("audit").stdout
    assert found(run("audit", *JSON))["sinks"][0]["changes"] == {
        "upserts": 9,
        "deletes": 2,
        "superseded": 1,
        "inserted": 5,
        "updated": 3,
        "deleted": 1,
        "late_upserts": 1,
        "late_deletes": 0,
        "absent": 1,
        "healed": 0,
    }


# What must be found


def forge(keyed: Upserts, place: int, **fields: str) -> None:
    """Other values in the summary of one snapshot; an empty one removes the property."""

    def edit(metadata: dict[str, Any]) -> None:
        summary = metadata["snapshots"][place]["summary"]
        summary.update(
            {name.replace("_", "-").replace("lakesink-", "lakesink."): text for name, text in fields.items()}
        )
        for name in [name for name, text in summary.items() if not text]:
            del summary[name]

    edit_metadata(keyed.lake, edit)


@pytest.mark.parametrize(
    ("place", "fields", "expected"),
    [
        (1, {"lakesink_updated": "2"}, "2 upserts became 1 inserted, 2 updated and 0 late rows, and 2 deletes became"),
        (1, {"lakesink_absent": "0"}, "2 deletes became 1 deleted, 0 late and 0 absent"),
        (1, {"lakesink_upserts": "3", "lakesink_inserted": "2"}, "it wrote 2 rows for 3 upserts and 0 superseded"),
        (3, {"lakesink_superseded": "0"}, "it wrote 3 rows for 2 upserts and 0 superseded changes"),
        (2, {"lakesink_healed": "1"}, "it added 2 position deletes, and 3 rows had to be removed"),
        (
            2,
            {"lakesink_late_upserts": "0", "lakesink_inserted": "1"},
            "turn 3 live rows into 4, and its summary states 3",
        ),
        (2, {"lakesink_healed": ""}, "its summary does not state what became of its changes"),
        (2, {"operation": "append"}, "a compaction at the same time can bring deleted rows back"),
    ],
)
def test_counts_that_contradict_the_snapshot_are_found(
    keyed: Upserts, place: int, fields: dict[str, str], expected: str
) -> None:
    forge(keyed, place, **fields)
    [finding] = audit(keyed.lake.table()).findings
    assert finding.code.name == "CHANGES_DISAGREE"
    assert finding.found.startswith(f"Batch {place}: ")
    assert expected in finding.found


def test_totals_that_leave_out_removed_deletes_are_found(keyed: Upserts) -> None:
    forge(keyed, 2, removed_position_deletes="")
    assert codes(audit(keyed.lake.table())) == ["CHANGES_DISAGREE", "SUMMARY_DISAGREES"]


def test_deletes_that_the_manifests_do_not_hold_are_found(keyed: Upserts) -> None:
    forge(keyed, 3, added_delete_files="7")
    [finding] = [one for one in audit(keyed.lake.table()).findings if "manifests hold" in one.found]
    assert "3 rows" in finding.found
    assert "7 delete files" in finding.found


def test_a_parent_that_has_expired_leaves_the_laws_of_the_batch_alone(keyed: Upserts) -> None:
    expire(keyed.lake)
    forge(keyed, 0, lakesink_healed="1")
    assert codes(audit(keyed.lake.table())) == ["CHANGES_DISAGREE"]


def delete_files(keyed: Upserts, snapshot_id: int) -> set[Path]:
    table = keyed.lake.table()
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    manifests = [one for one in snapshot.manifests(table.io) if one.content is ManifestContent.DELETES]
    return {local(entry.data_file.file_path) for one in manifests for entry in one.fetch_manifest_entry(table.io)}


@pytest.mark.parametrize(("ready", "place"), [(untouched, 1), (expired_by_java, 0)])
def test_a_delete_file_that_only_an_older_snapshot_needs_is_missed_too(
    keyed: Upserts, ready: Story, place: int
) -> None:
    ready(keyed)
    snapshots = [snapshot.snapshot_id for snapshot in keyed.lake.table().metadata.snapshots]
    older = delete_files(keyed, snapshots[place]) - delete_files(keyed, snapshots[-1])
    assert older
    older.pop().unlink()
    assert codes(audit(keyed.lake.table())) == ["FILE_MISSING"]


def test_delete_files_of_other_writers_that_a_batch_replaced_are_checked(tmp_path: Path) -> None:
    keyed = Upserts.make(tmp_path)
    keyed.run(0, {1: "a", 2: "b"})
    keyed.run(1, {3: "c"})
    path = next(task.file.file_path for task in keyed.lake.table().scan().plan_files() if task.file.record_count == 2)
    delete_by_position(keyed.lake, path, [0])
    foreign = delete_files(keyed, keyed.lake.head().snapshot_id)
    keyed.run(2, {4: "d"})  # the helper forgets the deletes of others
    keyed.run(3, {5: "e"})
    foreign.pop().unlink()
    assert codes(audit(keyed.lake.table())) == ["FILE_MISSING"]


def test_a_rollback_of_changes_is_found_by_the_ledger(keyed: Upserts) -> None:
    roll_back(keyed.lake, keyed.lake.table().metadata.snapshots[1].snapshot_id)
    assert codes(audit(keyed.lake.table())) == ["ROLLED_BACK"]


def test_an_audit_reads_each_manifest_once_however_many_batches_there_are(tmp_path: Path) -> None:
    keyed = Upserts.make(tmp_path)
    for batch_id in range(12):
        keyed.run(batch_id, {1: str(batch_id), 10 + batch_id: "x"})
    proof = audit(keyed.lake.table())
    assert codes(proof) == []
    assert proof.manifests == 12 + 11
