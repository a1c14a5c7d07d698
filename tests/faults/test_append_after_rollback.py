"""`append` after a rollback: what was undone is appended once more in its order, and no version is passed over."""

import pytest

from lakesink_protocol.errors import BatchRefused, Reason
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import Lake, Stream, counted, expected, offered
from testkit.maintenance import append_foreign, expire, roll_back


def undone(lake: Lake, *versions: int, left: int) -> Stream:
    load = Stream(lake, "nightly", kind=SinkKind.TXN)
    for version in versions:
        load.run(version)
    roll_back(lake, load.snapshot_of(left))
    return load


def refusal(load: Stream, version: int) -> BatchRefused:
    with pytest.raises(BatchRefused) as refused:
        load.run(version)
    assert refused.value.reason is Reason.ROLLED_BACK
    return refused.value


def test_the_last_version_again_does_not_pass_over_those_that_were_rolled_back_with_it(lake: Lake) -> None:
    load = undone(lake, 1, 2, 3, 4, 5, left=1)
    for version in (3, 4, 5, 6):
        assert "in this order: 2, 3, 4, 5." in refusal(load, version).action
    assert counted(lake) == expected(1)
    for version in (2, 3, 4, 5, 6):
        assert isinstance(load.run(version), Committed)
    assert isinstance(load.run(4), AlreadyCommitted)
    assert counted(lake) == expected(1, 2, 3, 4, 5, 6)


def test_versions_that_are_no_neighbours_come_back_in_their_order(lake: Lake) -> None:
    load = undone(lake, 10, 20, 30, 40, left=10)
    refusal(load, 30)
    for version in (20, 30, 40):
        assert isinstance(load.run(version), Committed)
    assert counted(lake) == expected(10, 20, 30, 40)


def test_before_the_first_version_the_first_one_comes_first(lake: Lake) -> None:
    foreign = append_foreign(lake)
    before = lake.head().snapshot_id
    load = Stream(lake, "nightly", kind=SinkKind.TXN)
    load.run(3)
    load.run(7)
    roll_back(lake, before)
    assert "in this order: 3, 7." in refusal(load, 7).action
    assert isinstance(load.run(3), Committed)
    assert isinstance(load.run(7), Committed)
    assert counted(lake) == expected(3, 7) + foreign


def test_where_expiry_hides_what_was_rolled_back_only_the_very_next_version_needs_no_word(lake: Lake) -> None:
    load = undone(lake, 1, 2, 5, left=1)
    foreign = append_foreign(lake)
    expire(
        lake, {snapshot.snapshot_id for snapshot in lake.table().metadata.snapshots if snapshot.sequence_number == 2}
    )
    refused = refusal(load, 5)
    assert "in this order: 5, and those that expiry hides" in refused.action
    assert "leaves every lower version that was rolled back" in refused.action
    assert isinstance(load.run(2), Committed)
    assert counted(lake) == expected(1, 2) + foreign


def test_a_version_that_an_operator_let_pass_over_others_leaves_them_out(lake: Lake) -> None:
    load = undone(lake, 1, 2, 3, left=1)
    assert isinstance(load.run(3, accept=offered(refusal(load, 3))["commit"]), Committed)
    assert isinstance(load.run(4), Committed)
    assert counted(lake) == expected(1, 3, 4)
