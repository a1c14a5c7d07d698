"""A branch forked off where a sink wrote, once expiry has taken the marks before the fork: nothing comes twice."""

from collections.abc import Callable

import pytest

from lakesink_protocol.errors import BatchRefused, Reason
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import Lake, Stream, counted, expected, offered
from testkit.maintenance import (
    append_foreign,
    branch_off,
    expire,
    expire_like_java,
    remove_ref,
    roll_back,
    set_property,
)

EXPIRIES = pytest.mark.parametrize("expiry", [expire, expire_like_java])
Expiry = Callable[[Lake], None]


def loaded(lake: Lake, kind: SinkKind, batches: range) -> Stream:
    stream = Stream(lake, "nightly", kind=kind)
    for batch_id in batches:
        stream.run(batch_id)
    return stream


def forked(stream: Stream) -> Stream:
    branch_off(stream.lake, "audit")
    return Stream(stream.lake, stream.sink_id, "audit", stream.query, stream.kind)


def refusal(stream: Stream, batch_id: int) -> BatchRefused:
    with pytest.raises(BatchRefused) as refused:
        stream.run(batch_id)
    assert refused.value.reason is Reason.UNKNOWN_HISTORY
    return refused.value


@EXPIRIES
@pytest.mark.parametrize("others", [0, 1, 2])
def test_no_version_that_a_fork_may_hold_is_appended_to_it_again(lake: Lake, expiry: Expiry, others: int) -> None:
    main = loaded(lake, SinkKind.TXN, range(1, 6))
    for _ in range(others):
        append_foreign(lake)
    audit = forked(main)
    expiry(lake)
    before = counted(lake, "audit")
    for version in range(1, 6):
        refusal(audit, version)
    assert isinstance(audit.run(6), Committed), "nobody wrote a higher version"
    assert counted(lake, "audit") == before + expected(6)


@EXPIRIES
def test_a_fork_hides_versions_also_if_main_went_on_or_its_ledger_cannot_be_read(lake: Lake, expiry: Expiry) -> None:
    main = loaded(lake, SinkKind.TXN, range(1, 4))
    append_foreign(lake)
    audit = forked(main)
    main.run(4)
    expiry(lake)
    for version in (1, 2, 3, 4):
        refusal(audit, version)
    set_property(lake, main.key.ledger_property, "{")
    assert "an unreadable ledger entry" in refusal(audit, 9).action


def test_an_operator_who_has_looked_at_the_rows_says_whether_a_version_is_there(lake: Lake) -> None:
    main = loaded(lake, SinkKind.TXN, range(1, 3))
    foreign = append_foreign(lake) + append_foreign(lake)
    audit = forked(main)
    expire_like_java(lake)
    refused = refusal(audit, 2)
    assert "its rows come twice if they are already written" in refused.action
    assert isinstance(audit.run(2, accept=offered(refused)["skip"]), Committed)
    assert isinstance(audit.run(2), AlreadyCommitted)
    assert isinstance(audit.run(3), Committed)
    assert counted(lake, "audit") == expected(1, 2, 3) + foreign


@pytest.mark.parametrize("kind", SinkKind)
def test_a_branch_that_shows_its_whole_history_takes_what_was_never_in_it(lake: Lake, kind: SinkKind) -> None:
    foreign = append_foreign(lake)
    branch_off(lake, "audit")
    loaded(lake, kind, range(3))
    audit = Stream(lake, "nightly", "audit", kind=kind)
    for batch_id in range(3):
        assert isinstance(audit.run(batch_id), Committed)
    assert counted(lake, "audit") == expected(0, 1, 2) + foreign


def test_versions_after_one_that_the_walk_shows_are_appended_though_expiry_cut_it_below(lake: Lake) -> None:
    main = loaded(lake, SinkKind.TXN, range(1, 4))
    audit = forked(main)
    main.run(7)
    expire_like_java(lake)
    assert isinstance(audit.run(5), Committed), "version 3 is at the head, and versions only grow"
    assert counted(lake, "audit") == expected(1, 2, 3, 5)


def test_a_version_that_came_to_main_by_a_fast_forward_is_not_appended_again(lake: Lake) -> None:
    main = loaded(lake, SinkKind.TXN, range(1, 2))
    audit = forked(main)
    audit.run(2)
    audit.run(3)
    roll_back(lake, lake.head("audit").snapshot_id)
    assert offered(refusal(main, 3)).keys() == {"skip"}
    assert offered(refusal(main, 2)).keys() == set(), "version 3 would come again after it"
    assert isinstance(main.run(4), Committed)
    assert counted(lake) == expected(1, 2, 3, 4)


@EXPIRIES
def test_a_stream_is_not_begun_again_on_a_fork_that_may_hold_its_batches(lake: Lake, expiry: Expiry) -> None:
    main = loaded(lake, SinkKind.STREAM, range(5))
    foreign = append_foreign(lake) + append_foreign(lake)
    audit = forked(main)
    expiry(lake)
    next_one = refusal(audit, 5)
    assert "which are not written" not in next_one.action
    assert "expiry hides whether those rows are written" in next_one.action
    assert "also by a new checkpoint" in next_one.action
    anew = Stream(lake, "nightly", "audit", "query-2")
    assert "rows that are already written come twice" in refusal(anew, 0).action
    assert isinstance(audit.overrule(5), Committed)
    assert counted(lake, "audit") == expected(0, 1, 2, 3, 4, 5) + foreign


def test_a_stream_is_not_begun_again_on_a_fork_of_a_branch_that_is_gone(lake: Lake) -> None:
    append_foreign(lake)
    branch_off(lake, "staging")
    staging = Stream(lake, "nightly", "staging")
    staging.run(0)
    append_foreign(lake, "staging")
    branch_off(lake, "audit", lake.head("staging").snapshot_id)
    append_foreign(lake, "audit")
    remove_ref(lake, "staging")
    expire_like_java(lake)
    refusal(Stream(lake, "nightly", "audit", "query-2"), 0)
