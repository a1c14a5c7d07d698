"""What lakesink asks of a catalog, asked of all of them alike: the simulator's stand-in proves what real ones do.

Which exception comes may differ by kind where it says the same: `STALE`, `SENSELESS` and `GONE` tell what is equal.
"""

import time
import uuid
from collections.abc import Iterator

import pytest
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
)

from tests.proof.catalogs import CATALOGS, NEED_SERVERS, Place, Places
from tests.proof.commits import (
    MAIN,
    MAX_AGE_MS,
    TAG,
    Commit,
    batch,
    create,
    from_ahead,
    head_is,
    last_sequence,
    load,
    ref_at,
    shown,
)

STALE = (CommitFailedException,)
"""Somebody was faster. Every kind says so with the same word."""
SENSELESS = (ValueError, BadRequestError)
"""The request makes no sense for the table: PyIceberg's own check, or a server's 400."""
GONE = (NoSuchTableError, CommitFailedException, RESTError)
"""There is no such table any more: PyIceberg's REST client has no word of its own for a 404 to a commit."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.soak] if name in NEED_SERVERS else []) for name in CATALOGS],
)
def places(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    with CATALOGS[request.param](tmp_path_factory.mktemp(request.param)) as places:
        yield places


@pytest.fixture
def place(places: Places) -> Place:
    return places()


def assert_refused(place: Place, commit: Commit, *how: type[Exception]) -> None:
    """It is refused in that way, and the table is the very version that it was."""
    before = load(place)
    with pytest.raises(how):
        commit.send()
    after = load(place)
    assert after.metadata_location == before.metadata_location
    assert after.metadata == before.metadata


def test_a_table_that_is_not_there_is_said_to_be_missing(place: Place) -> None:
    with pytest.raises(NoSuchTableError):
        load(place)


def test_a_new_table_is_empty_and_has_what_it_was_given(place: Place) -> None:
    made = create(place, own="value")
    for table in (made, load(place)):
        metadata = table.metadata
        assert (metadata.format_version, metadata.snapshots, metadata.refs, last_sequence(metadata)) == (2, [], {}, 0)
        assert metadata.properties["own"] == "value"
        assert metadata.current_snapshot_id is None
        assert [field.name for field in table.schema().fields] == ["id"]
    assert load(place).metadata.table_uuid == made.metadata.table_uuid


def test_a_table_is_created_once(place: Place) -> None:
    made = create(place)
    with pytest.raises(TableAlreadyExistsError):
        create(place)
    assert load(place).metadata.table_uuid == made.metadata.table_uuid


def test_a_commit_moves_snapshot_branch_property_and_tag_together_and_the_answer_shows_it(place: Place) -> None:
    commit = batch(create(place), 1001)
    answer = commit.send()
    table = load(place)
    assert answer.metadata == table.metadata
    assert answer.metadata_location == table.metadata_location
    found = shown(table.metadata)
    assert found["snapshots"] == [(1001, None, 1)]
    assert found["refs"] == {
        MAIN: (1001, SnapshotRefType.BRANCH, None),
        TAG: (1001, SnapshotRefType.TAG, MAX_AGE_MS),
    }
    assert (found["properties"], found["sequence"]) == ({"ledger": "1001"}, 1)
    assert table.metadata.current_snapshot_id == 1001


def test_batches_follow_each_other(place: Place) -> None:
    create(place)
    for snapshot_id in (1001, 1002, 1003):
        batch(load(place), snapshot_id).send()
    found = shown(load(place).metadata)
    assert found["snapshots"] == [(1001, None, 1), (1002, 1001, 2), (1003, 1002, 3)]
    assert {ref[0] for ref in found["refs"].values()} == {1003}
    assert (found["properties"], found["sequence"]) == ({"ledger": "1003"}, 3)


def test_a_snapshot_s_summary_comes_back_as_it_was(place: Place) -> None:
    batch(create(place), 1001).send()
    summary = load(place).metadata.snapshots[0].summary
    assert summary is not None
    assert summary.operation is Operation.APPEND
    assert (summary["lakesink.batch"], summary["total-records"]) == ("1001", "0")


def test_the_log_has_the_time_of_each_snapshot_as_it_was_sent(place: Place) -> None:
    """The table's own time may be that or the server's."""
    create(place)
    for snapshot_id in (1001, 1002):
        batch(load(place), snapshot_id).send()
    metadata = load(place).metadata
    times = [snapshot.timestamp_ms for snapshot in metadata.snapshots]
    assert [entry.timestamp_ms for entry in metadata.snapshot_log] == times
    assert times[0] < times[1]
    assert metadata.last_updated_ms >= times[-1]


def test_a_snapshot_may_be_from_the_near_future_and_the_next_one_is_after_it(place: Place) -> None:
    """As of a writer whose clock is ahead."""
    table = create(place)
    ahead = table.metadata.last_updated_ms + 30_000
    from_ahead(batch(table, 1001), ahead).send()
    batch(load(place), 1002).send()
    assert [entry.timestamp_ms for entry in load(place).metadata.snapshot_log] == [ahead, ahead + 1]


def test_a_snapshot_from_far_ahead_is_taken_whole_or_refused_whole(place: Place) -> None:
    """Iceberg's own server refuses more than a minute: a driver whose clock is that wrong commits nothing there."""
    table = create(place)
    commit = from_ahead(batch(table, 1001), table.metadata.last_updated_ms + 600_000)
    try:
        commit.send()
    except SENSELESS:
        assert load(place).metadata == table.metadata
    else:
        assert shown(load(place).metadata)["snapshots"] == [(1001, None, 1)]


def test_earlier_versions_are_listed_in_order_and_can_be_read(place: Place) -> None:
    create(place)
    versions = []
    for snapshot_id in (1001, 1002, 1003):
        table = load(place)
        versions.append((table.metadata_location, [one.snapshot_id for one in table.metadata.snapshots]))
        batch(table, snapshot_id).send()
    table = load(place)
    assert [entry.metadata_file for entry in table.metadata.metadata_log] == [location for location, _ in versions]
    for location, snapshots in versions:
        read = FromInputFile.table_metadata(table.io.new_input(location))
        assert [one.snapshot_id for one in read.snapshots] == snapshots
    assert FromInputFile.table_metadata(table.io.new_input(table.metadata_location)) == table.metadata


def test_of_two_commits_on_one_head_the_second_is_refused(place: Place) -> None:
    table = create(place)
    first, late = batch(table, 1001), batch(table, 1002)
    first.send()
    assert_refused(place, late, *STALE)
    table = load(place)
    second, late = batch(table, 1003), batch(table, 1004)
    second.send()
    assert_refused(place, late, *STALE)


@pytest.mark.parametrize("asserted", [None, 1001, 4711])
def test_the_head_alone_refuses(place: Place, asserted: int | None) -> None:
    create(place)
    batch(load(place), 1001).send()
    batch(load(place), 1002).send()
    assert_refused(place, batch(load(place), 1003).asserting(head_is(asserted)), *STALE)


@pytest.mark.parametrize("asserted", [None, 1001, 4711])
def test_the_tag_alone_refuses(place: Place, asserted: int | None) -> None:
    create(place)
    batch(load(place), 1001).send()
    batch(load(place), 1002).send()
    assert_refused(place, batch(load(place), 1003).asserting(head_is(1002), head_is(asserted, TAG)), *STALE)
    batch(load(place), 1003).asserting(head_is(1002), head_is(1002, TAG)).send()


def test_a_tag_that_is_not_there_may_be_asserted_to_be_absent_and_not_to_be_anywhere(place: Place) -> None:
    commit = batch(create(place), 1001)
    commit.asking(*commit.updates[:-1]).send()
    commit = batch(load(place), 1002)
    assert_refused(place, commit.asserting(head_is(1001), head_is(1001, TAG)), *STALE)
    commit.asserting(head_is(1001), head_is(None, TAG)).send()
    assert load(place).metadata.refs[TAG].snapshot_id == 1002


def test_the_table_s_identity_alone_refuses(place: Place) -> None:
    commit = batch(create(place), 1001)
    assert_refused(place, commit.asserting(AssertTableUUID(uuid=uuid.uuid4())), *STALE)
    commit.send()


def test_the_schema_alone_refuses(place: Place) -> None:
    commit = batch(create(place), 1001)
    assert_refused(place, commit.asserting(AssertCurrentSchemaId(current_schema_id=7)), *STALE)
    commit.send()


def test_one_assertion_that_fails_is_enough(place: Place) -> None:
    create(place)
    batch(load(place), 1001).send()
    commit = batch(load(place), 1002)
    assert_refused(place, commit.asserting(*commit.requirements, head_is(None, TAG)), *STALE)


def test_the_same_request_sent_again_is_refused(place: Place) -> None:
    commit = batch(create(place), 1001)
    commit.send()
    assert_refused(place, commit, *STALE)
    batch(load(place), 1002).send()
    assert_refused(place, commit, *STALE)


@pytest.mark.parametrize("taken", [1001, 1002])
def test_a_second_snapshot_of_one_id_is_refused(place: Place, taken: int) -> None:
    create(place)
    batch(load(place), 1001).send()
    batch(load(place), 1002).send()
    assert_refused(place, batch(load(place), taken), *SENSELESS)


def test_an_id_is_free_again_once_its_snapshot_has_expired(place: Place) -> None:
    """Why the id is no ledger: it holds only while the snapshot is there. PyIceberg also cuts the link to it."""
    create(place)
    for snapshot_id in (1001, 1002):
        batch(load(place), snapshot_id).send()
    Commit(load(place), (), (RemoveSnapshotsUpdate(snapshot_ids=[1001]),)).send()
    found = shown(load(place).metadata)
    assert found["snapshots"] in ([(1002, 1001, 2)], [(1002, None, 2)])
    assert (found["properties"], found["sequence"]) == ({"ledger": "1002"}, 2)
    batch(load(place), 1001).send()
    assert shown(load(place).metadata)["snapshots"] == [*found["snapshots"], (1001, 1002, 3)]


def test_a_commit_to_another_branch_outdates_the_sequence_number(place: Place) -> None:
    """The head and the tag are as asserted, and yet the request is refused: lakesink takes it for a conflict."""
    create(place)
    batch(load(place), 1001).send()
    Commit(load(place), (), (ref_at("other", 1001),)).send()
    table = load(place)
    here, there = batch(table, 1002), batch(table, 1003, branch="other")
    there.asking(*there.updates[:2]).send()
    assert_refused(place, here, *STALE, *SENSELESS)
    batch(load(place), 1002).send()
    assert shown(load(place).metadata)["snapshots"] == [(1001, None, 1), (1003, 1001, 2), (1002, 1001, 3)]


def test_a_branch_at_a_snapshot_that_is_not_there_takes_nothing_with_it(place: Place) -> None:
    create(place)
    batch(load(place), 1001).send()
    commit = batch(load(place), 1002)
    impossible = commit.asking(SetPropertiesUpdate(updates={"ledger": "1002"}), ref_at(MAIN, 1002))
    assert_refused(place, impossible, *SENSELESS)


def test_commits_of_properties_alone_do_not_fence_each_other(place: Place) -> None:
    """Why an empty batch commits a snapshot: the head does not move, so that its assertion holds for both."""
    create(place, other="kept")
    batch(load(place), 1001).send()
    table = load(place)
    for value in ("first", "second"):
        change = SetPropertiesUpdate(updates={"own": value})
        Commit(table, (AssertTableUUID(uuid=table.metadata.table_uuid), head_is(1001)), (change,)).send()
    found = load(place).metadata
    assert shown(found)["properties"] == {"ledger": "1001", "own": "second", "other": "kept"}
    Commit(load(place), (), (RemovePropertiesUpdate(removals=["own"]),)).send()
    assert shown(load(place).metadata)["properties"] == {"ledger": "1001", "other": "kept"}


def test_a_rollback_leaves_snapshot_property_tag_and_sequence(place: Place) -> None:
    create(place)
    for snapshot_id in (1001, 1002):
        batch(load(place), snapshot_id).send()
    Commit(load(place), (head_is(1002),), (ref_at(MAIN, 1001),)).send()
    found = shown(load(place).metadata)
    assert {name: ref[0] for name, ref in found["refs"].items()} == {MAIN: 1001, TAG: 1002}
    assert (found["properties"], found["sequence"]) == ({"ledger": "1002"}, 2)
    assert [snapshot[0] for snapshot in found["snapshots"]] == [1001, 1002]
    batch(load(place), 1003).send()
    assert shown(load(place).metadata)["snapshots"][-1] == (1003, 1001, 3)


def test_a_tag_is_removed_and_its_snapshot_stays(place: Place) -> None:
    create(place)
    batch(load(place), 1001).send()
    Commit(load(place), (head_is(1001, TAG),), (RemoveSnapshotRefUpdate(ref_name=TAG),)).send()
    found = shown(load(place).metadata)
    assert list(found["refs"]) == [MAIN]
    assert found["snapshots"] == [(1001, None, 1)]


def test_what_was_loaded_does_not_change(place: Place) -> None:
    table = create(place)
    before, location = table.metadata.model_copy(deep=True), table.metadata_location
    batch(load(place), 1001).send()
    assert (table.metadata, table.metadata_location) == (before, location)


def test_a_dropped_table_takes_no_commit_and_does_not_come_back(place: Place) -> None:
    table = create(place)
    batch(table, 1001).send()
    late = batch(load(place), 1002)
    place.catalog.drop_table(place.name)
    with pytest.raises(NoSuchTableError):
        load(place)
    with pytest.raises(GONE):
        late.send()
    with pytest.raises(NoSuchTableError):
        load(place)


def test_a_table_that_took_another_one_s_name_takes_none_of_its_commits(place: Place) -> None:
    first, late = batch(create(place), 1001), batch(load(place), 1002)
    first.send()
    followed = batch(load(place), 1003)
    place.catalog.drop_table(place.name)
    time.sleep(0.002)  # tables of one millisecond would share the name of a metadata file
    replaced = create(place)
    assert replaced.metadata.table_uuid != first.table.metadata.table_uuid
    for commit in (first, late, followed):
        assert_refused(place, commit, *STALE)
    batch(load(place), 1004).send()
    assert shown(load(place).metadata)["snapshots"] == [(1004, None, 1)]
