"""A reader's branch keeps unread batches, and disturbs neither the stream that writes nor the reader."""

import pytest
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

from lakesink.read.follow import commits_after, past_of
from lakesink.read.hold import readers, set_hold
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.outcome import Committed
from testkit.builders import TABLE, Lake, Stream, expected
from testkit.maintenance import change
from tests.doctor.liars import LosesRefs
from tests.read.consumer import EVENTS, Consumer

BRANCH = "lakesink-reader-silver"


def hold_unread(lake: Lake, consumer: Consumer) -> int:
    assert consumer.position is not None
    table = lake.table()
    past = past_of(table, TABLE, EVENTS, consumer.position)
    unread = commits_after(past, EVENTS, consumer.position)
    head = unread[-1].snapshot_id
    assert set_hold(table, "silver", head, len(unread)) == ""
    return head


def test_the_branch_keeps_the_snapshots_back_to_the_first_unread_batch(lake: Lake) -> None:
    stream, consumer = Stream(lake), Consumer(lake)
    stream.run(0)
    consumer.poll()
    for batch in (1, 2, 3):
        stream.run(batch)
    hold_unread(lake, consumer)
    ref = lake.table().metadata.refs[BRANCH]
    assert (ref.snapshot_ref_type, ref.snapshot_id) == (SnapshotRefType.BRANCH, stream.snapshot_of(3))
    assert (ref.min_snapshots_to_keep, ref.max_snapshot_age_ms) == (3, 1)


def test_the_branch_tells_which_batch_its_reader_is_behind_unless_several_sinks_write(lake: Lake) -> None:
    stream, consumer = Stream(lake), Consumer(lake)
    stream.run(0)
    stream.run(1)
    consumer.poll()
    assert list(readers(lake.table())) == []
    stream.run(2)
    stream.run(3)
    hold_unread(lake, consumer)
    assert list(readers(lake.table())) == [("silver", stream.key, 1)]
    Stream(lake, "other").run(0)
    assert list(readers(lake.table())) == []


def test_a_commit_that_meets_the_branch_on_its_way_lands_at_once(lake: Lake) -> None:
    stream, consumer = Stream(lake), Consumer(lake)
    stream.run(0)
    consumer.poll()
    stream.run(1)
    seen = lake.table()
    moved = hold_unread(lake, consumer)
    outcome = stream.run(2)
    assert isinstance(outcome, Committed)
    assert outcome.attempts == 1
    assert set_hold(seen, "silver", moved, 2) == "another commit came first"
    assert lake.table().metadata.refs["main"].min_snapshots_to_keep is None
    assert consumer.poll() == [1, 2]
    assert consumer.rows == expected(0, 1, 2)


def test_a_hold_that_is_there_already_is_no_commit(lake: Lake) -> None:
    stream, consumer = Stream(lake), Consumer(lake)
    stream.run(0)
    consumer.poll()
    stream.run(1)
    hold_unread(lake, consumer)
    before = lake.table().metadata_location
    hold_unread(lake, consumer)
    assert lake.table().metadata_location == before


def test_a_tag_of_that_name_stays(lake: Lake) -> None:
    Stream(lake).run(0)
    head = lake.head().snapshot_id
    change(
        lake,
        SetSnapshotRefUpdate(
            ref_name=BRANCH,
            type=SnapshotRefType.TAG,
            snapshot_id=head,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        ),
    )
    assert set_hold(lake.table(), "silver", head, 1) == f"{BRANCH} is a tag"
    assert lake.table().metadata.refs[BRANCH].snapshot_ref_type is SnapshotRefType.TAG


def test_a_catalog_that_leaves_the_branch_out_stops_the_reader_which_has_asked_for_it(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)
    catalog = LosesRefs("test", uri=f"sqlite:///{lake.folder}/catalog.db", warehouse=f"file://{lake.folder}/warehouse")
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_WITHOUT_TAGS") as stopped:
        set_hold(catalog.load_table(TABLE), "silver", stream.snapshot_of(0), 1)
    assert "Leave out reader-id" in stopped.value.action
    assert BRANCH not in lake.table().metadata.refs
