"""Audit tags while others are at work: rivals, late requests, rollback, expiry and rewritten files."""

from collections import Counter
from collections.abc import Callable

import pytest
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate

from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.answers import sent_twice
from testkit.builders import Lake, Stream, counted, expected
from testkit.maintenance import expire, expire_like_java, rewrite, roll_back, sweep
from tests.faults.test_rivals import Driver, past_the_check

DAY_MS = 24 * 3_600_000


@pytest.fixture
def stream(lake: Lake) -> Stream:
    return Stream(lake, options={"tag_every": 1})


def audit_tags(stream: Stream) -> dict[str, int]:
    refs = stream.lake.table().metadata.refs
    return {name: ref.snapshot_id for name, ref in refs.items() if name.startswith(stream.key.audit_tag_prefix)}


def own(stream: Stream, *batches: int) -> dict[str, int]:
    return {stream.key.audit_tag(batch_id): stream.snapshot_of(batch_id) for batch_id in batches}


def rows_as_of(lake: Lake, tag: str) -> Counter[tuple[int, int]]:
    found = lake.table().scan().use_ref(tag).to_arrow().to_pylist()
    return Counter((row["batch"], row["position"]) for row in found)


def test_the_tag_is_asserted_absent_by_the_request_that_adds_its_snapshot(lake: Lake, stream: Stream) -> None:
    for batch_id in range(2):
        stream.run(batch_id, tag_max_age="90 days")
    requirements, updates = lake.catalog.sent[-1]
    name = stream.key.audit_tag(1)
    [added] = [update.snapshot.snapshot_id for update in updates if isinstance(update, AddSnapshotUpdate)]
    [tag] = [update for update in updates if isinstance(update, SetSnapshotRefUpdate) and update.ref_name == name]
    assert (tag.snapshot_id, tag.max_ref_age_ms) == (added, 90 * DAY_MS)
    assert AssertRefSnapshotId(ref=name, snapshot_id=None) in requirements


@pytest.mark.parametrize("every", [1, "1 day"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=str)
def test_drivers_past_the_check_leave_one_tag_at_what_landed(lake: Lake, order: tuple[int, ...], every: object) -> None:
    stream = Stream(lake, options={"tag_every": every})
    stream.chance.move_ms(-2 * DAY_MS)
    stream.run(0)
    drivers = [Driver(lake, 1) for _ in range(2)]
    for driver in drivers:
        driver.stream.options = stream.options
        past_the_check([driver])
    for number in order:
        drivers[number].release()
        assert isinstance(drivers[number].outcome, Committed | AlreadyCommitted)
    assert audit_tags(stream) == own(stream, 0, 1)
    assert counted(lake) == expected(0, 1)


def test_a_request_that_arrives_after_its_retry_moves_no_tag(lake: Lake, stream: Stream) -> None:
    stream.run(0)
    lake.catalog.faults = [lake.catalog.arrives_late]
    stream.run(1)
    with pytest.raises(Exception, match="Requirement failed"):
        lake.catalog.late[0]()
    assert audit_tags(stream) == own(stream, 0, 1)


def test_a_request_sent_twice_by_the_transport_leaves_one_tag(lake: Lake, stream: Stream) -> None:
    stream.run(0)
    lake.catalog.faults = [sent_twice]
    stream.run(1)
    assert audit_tags(stream) == own(stream, 0, 1)


@pytest.mark.parametrize("expiry", [expire, expire_like_java])
def test_a_tag_shows_its_batches_exactly_after_files_were_rewritten_and_orphans_deleted(
    lake: Lake, expiry: Callable[[Lake], None]
) -> None:
    stream = Stream(lake, options={"tag_every": "3 batches"}).filled(8)
    rewrite(lake)
    expiry(lake)
    sweep(lake)
    assert len(lake.table().metadata.snapshots) < 8
    assert audit_tags(stream)
    for name in audit_tags(stream):
        batch_id = int(name.removeprefix(stream.key.audit_tag_prefix))
        assert rows_as_of(lake, name) == expected(*range(batch_id + 1))
    assert isinstance(stream.run(8), Committed)
    assert counted(lake) == expected(*range(9))


@pytest.mark.parametrize("expiry", [lambda _: None, expire, expire_like_java], ids=["kept", "cut", "cut like java"])
def test_a_day_whose_first_batch_was_rolled_back_is_tagged_again(lake: Lake, expiry: Callable[[Lake], None]) -> None:
    stream = Stream(lake, options={"tag_every": "1 day"})
    stream.run(0)
    stream.chance.move_ms(DAY_MS)
    for batch_id in (1, 2):
        stream.run(batch_id)
    roll_back(lake, stream.snapshot_of(0))
    expiry(lake)
    for batch_id in (1, 2):
        stream.run(batch_id)
    assert audit_tags(stream) == own(stream, 0, 1)
