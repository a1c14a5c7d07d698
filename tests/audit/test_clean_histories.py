"""What streams and others rightly do to a table is no finding: maintenance, deletes, branches, replays, overruling."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files

from lakesink_protocol.identity import SinkKind
from lakesink_tools.audit.audit import Proof, audit
from lakesink_tools.operate.remove_sink import Forgetting
from testkit.builders import Lake, Stream
from testkit.maintenance import (
    append_foreign,
    branch_off,
    edit_metadata,
    expire,
    expire_like_java,
    remove_ref,
    rewrite,
    roll_back,
    set_property,
    sweep,
)
from tests.audit.deletes import delete_by_equality, delete_by_position
from tests.faults.test_cherry_picks import pick

Story = Callable[[Lake, Stream], None]


def compact(lake: Lake) -> None:
    """All rows in one new file, by one snapshot of the operation that rewriting engines give."""
    table = lake.table()
    rows, old = table.scan().to_arrow(), [task.file for task in table.scan().plan_files()]
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
        for file in old:
            snapshot.delete_data_file(file)
        for file in _dataframe_to_data_files(table.metadata, rows, table.io, write_uuid=uuid.uuid4()):
            snapshot.append_data_file(file)
    edit_metadata(lake, lambda metadata: metadata["snapshots"][-1]["summary"].update(operation="replace"))


def batches(stream: Stream, first: int, last: int) -> None:
    for batch_id in range(first, last + 1):
        stream.run(batch_id, rows=0 if batch_id == 2 else 3)


def compacted_and_expired(lake: Lake, stream: Stream) -> None:
    compact(lake)
    append_foreign(lake)
    expire(lake)
    sweep(lake)
    stream.run(4)


def replayed_after_a_rollback(lake: Lake, stream: Stream) -> None:
    roll_back(lake, stream.snapshot_of(1))
    batches(stream, 2, 4)


def another_branch_with_a_sink_of_its_own(lake: Lake, stream: Stream) -> None:
    branch_off(lake, "audit")
    batches(Stream(lake, sink_id="checks", branch="audit"), 0, 2)
    batches(stream, 4, 5)
    Stream(lake, sink_id="checks", branch="audit").run(3)


def versions_of_an_application(lake: Lake, _: Stream) -> None:
    nightly = Stream(lake, sink_id="nightly", kind=SinkKind.TXN)
    for version in (3, 42, 1000):
        nightly.run(version)


def a_new_checkpoint_from_where_the_old_one_ended(lake: Lake, _: Stream) -> None:
    second = Stream(lake, query="query-2")
    second.run(second.batch(0, start=4, end=5))
    second.run(second.batch(1, start=5, end=6))


def rolled_back_and_picked(lake: Lake, stream: Stream) -> None:
    brought = [stream.snapshot_of(batch_id) for batch_id in (1, 3)]
    roll_back(lake, stream.snapshot_of(0))
    pick(lake, brought[0])
    stream.run(2)
    batches(stream, 3, 4)


def picked_and_replayed_from_there(lake: Lake, stream: Stream) -> None:
    newest = stream.snapshot_of(3)
    roll_back(lake, stream.snapshot_of(2))
    pick(lake, newest)
    batches(stream, 4, 5)


def picked_from_what_has_expired(lake: Lake, stream: Stream) -> None:
    newest = stream.snapshot_of(3)
    picked_and_replayed_from_there(lake, stream)
    expire(lake, [newest])


def picked_from_another_branch(lake: Lake, stream: Stream) -> None:
    branch_off(lake, "staged")
    staged = Stream(lake, sink_id="staged", branch="staged")
    batches(staged, 0, 3)
    pick(lake, staged.snapshot_of(1))
    batches(stream, 4, 5)


def retired(lake: Lake, stream: Stream) -> None:
    Stream(lake, sink_id="other").run(0)
    Forgetting(lake.table, stream.key).run()


def tagged_then_expired(lake: Lake, stream: Stream) -> None:
    lake.table().manage_snapshots().create_tag(stream.snapshot_of(1), "keep").commit()
    expire(lake)
    stream.run(4)


def merged_manifests(lake: Lake, stream: Stream) -> None:
    set_property(lake, "commit.manifest.min-count-to-merge", "2")
    batches(stream, 4, 9)


def untouched(_: Lake, stream: Stream) -> None:
    assert stream.writes == 4


def foreign_rows_between(lake: Lake, stream: Stream) -> None:
    append_foreign(lake)
    stream.run(4)
    append_foreign(lake)


def rewritten(lake: Lake, stream: Stream) -> None:
    rewrite(lake)
    stream.run(4)


def compacted(lake: Lake, stream: Stream) -> None:
    compact(lake)
    stream.run(4)
    compact(lake)


def a_batch_deleted(lake: Lake, stream: Stream) -> None:
    lake.table().delete("batch == 1")
    stream.run(4)


def rows_deleted(lake: Lake, stream: Stream) -> None:
    lake.table().delete("position == 1")
    stream.run(4)


def rows_deleted_by_position(lake: Lake, stream: Stream) -> None:
    delete_by_position(lake, next(iter(lake.table().scan().plan_files())).file.file_path, [0, 2])
    stream.run(4)


def rows_deleted_by_value(lake: Lake, _: Stream) -> None:
    delete_by_equality(lake, 1)
    append_foreign(lake)


def expired(lake: Lake, stream: Stream) -> None:
    expire(lake)
    sweep(lake)
    stream.run(4)


def expired_by_java(lake: Lake, stream: Stream) -> None:
    expire_like_java(lake)
    stream.run(4)


def every_own_snapshot_expired(lake: Lake, stream: Stream) -> None:
    append_foreign(lake)
    remove_ref(lake, stream.key.ledger_tag)
    expire(lake)


def replayed_and_expired(lake: Lake, stream: Stream) -> None:
    replayed_after_a_rollback(lake, stream)
    expire(lake)
    sweep(lake)


STORIES: list[Story] = [
    untouched,
    foreign_rows_between,
    rewritten,
    compacted,
    compacted_and_expired,
    a_batch_deleted,
    rows_deleted,
    rows_deleted_by_position,
    rows_deleted_by_value,
    expired,
    expired_by_java,
    every_own_snapshot_expired,
    replayed_after_a_rollback,
    replayed_and_expired,
    another_branch_with_a_sink_of_its_own,
    versions_of_an_application,
    a_new_checkpoint_from_where_the_old_one_ended,
    rolled_back_and_picked,
    picked_and_replayed_from_there,
    picked_from_what_has_expired,
    picked_from_another_branch,
    retired,
    tagged_then_expired,
    merged_manifests,
]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.make(tmp_path)


@pytest.fixture
def stream(lake: Lake) -> Stream:
    """Four batches, the third of them empty."""
    stream = Stream(lake)
    batches(stream, 0, 3)
    return stream


def notes(proof: Proof) -> dict[str, str]:
    return {note.name: note.found for note in proof.notes}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_what_may_happen_to_a_table_is_no_finding(lake: Lake, stream: Stream, story: Story) -> None:
    story(lake, stream)
    proof = audit(lake.table())
    assert proof.findings == ()
    assert proof.unchecked == 0
    assert proof.sinks


def test_an_empty_table_and_one_of_others_have_no_finding(lake: Lake) -> None:
    assert audit(lake.table()).findings == ()
    append_foreign(lake)
    proof = audit(lake.table())
    assert (proof.findings, proof.sinks, proof.files) == ((), (), 1)


def test_every_file_that_a_retained_snapshot_needs_is_looked_at(lake: Lake, stream: Stream) -> None:
    compact(lake)
    stream.run(4)
    assert audit(lake.table()).files == 3 + 1 + 1  # as the tag and the history still show them, compacted, and new


def test_a_proof_says_which_batches_it_saw(lake: Lake, stream: Stream) -> None:
    assert stream.sink_id == "events"
    [found] = audit(lake.table()).sinks
    assert (found.sink, found.branch, found.last, found.oldest, found.batches, found.rows) == (
        "events",
        "main",
        3,
        0,
        4,
        9,
    )


@pytest.mark.parametrize("forget_snapshots", [expire, expire_like_java])
def test_what_expiry_took_is_said_and_its_files_are_looked_at(
    lake: Lake, stream: Stream, forget_snapshots: Callable[[Lake], None]
) -> None:
    assert "history" not in notes(audit(lake.table()))
    append_foreign(lake)
    forget_snapshots(lake)
    proof = audit(lake.table())
    assert notes(proof)["history"] == (
        "Batches before 3 cannot be listed: their snapshots have expired."
        " The files of expired snapshots in the branch were checked: 2 files with 6 rows."
    )
    assert (proof.sinks[0].last, proof.sinks[0].oldest, proof.files) == (3, 3, 4)
    remove_ref(lake, stream.key.ledger_tag)
    forget_snapshots(lake)
    proof = audit(lake.table())
    assert notes(proof)["history"].startswith("No batch is retained on the branch: only the ledger")
    assert (proof.sinks[0].last, proof.sinks[0].oldest, proof.files) == (3, None, 4)


def test_batches_that_only_tags_keep_are_told(lake: Lake, stream: Stream) -> None:
    tagged_then_expired(lake, stream)
    assert "Tags keep of them 1 batch: 1." in notes(audit(lake.table()))["history"]


def test_snapshots_that_no_branch_leads_to_are_told(lake: Lake, stream: Stream) -> None:
    replayed_after_a_rollback(lake, stream)
    assert notes(audit(lake.table()))["aside"].startswith("2 retained snapshots on no branch: ")


def test_one_sink_can_be_looked_at_alone(lake: Lake, stream: Stream) -> None:
    Stream(lake, sink_id="other").run(0)
    set_property(lake, stream.key.ledger_property, None)
    assert [finding.code.name for finding in audit(lake.table()).findings] == ["LEDGER_LOST"]
    assert audit(lake.table(), sink="other").findings == ()
