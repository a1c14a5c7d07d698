"""An operator who takes a refusal at its word: nothing is doubled or lost that the message did not name."""

import re

import pytest

from lakesink_protocol.errors import BatchRefused, Reason
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.answers import lands_then
from testkit.builders import Lake, Stream, counted, expected, offered
from testkit.maintenance import append_foreign, branch_off, expire, expire_like_java, set_property
from tests.faults.test_forget import forgetting


def refusal_of(stream: Stream, batch_id: int, reason: Reason) -> BatchRefused:
    with pytest.raises(BatchRefused) as refused:
        stream.run(batch_id)
    assert refused.value.reason is reason
    return refused.value


@pytest.mark.parametrize("java", [True, False], ids=["java", "pyiceberg"])
@pytest.mark.parametrize("replayed", ["again", "after others committed and history expired"])
def test_a_batch_that_was_accepted_late_lands_once(lake: Lake, replayed: str, *, java: bool) -> None:
    """Accepted, then a crash before Spark's commit log; the replay comes with the same word."""
    stream = Stream(lake).filled(5)
    foreign = append_foreign(lake)
    (expire_like_java if java else expire)(lake)
    word = offered(refusal_of(stream, 1, Reason.REWOUND))["commit"]
    assert isinstance(stream.run(1, accept=word), Committed)
    if replayed != "again":
        foreign += append_foreign(lake)
        foreign += append_foreign(lake)
        (expire_like_java if java else expire)(lake)
    assert isinstance(stream.run(1, accept=word), AlreadyCommitted)
    assert counted(lake) == expected(0, 1, 1, 2, 3, 4) + foreign


@pytest.mark.parametrize("java", [True, False], ids=["java", "pyiceberg"])
def test_an_accepted_batch_whose_answer_is_lost_lands_once_though_history_expires_before_the_next_look(
    lake: Lake, *, java: bool
) -> None:
    stream = Stream(lake).filled(5)
    foreign = append_foreign(lake)
    (expire_like_java if java else expire)(lake)
    word = offered(refusal_of(stream, 1, Reason.REWOUND))["commit"]

    def meanwhile() -> None:
        nonlocal foreign
        foreign += append_foreign(lake)
        foreign += append_foreign(lake)
        (expire_like_java if java else expire)(lake)

    lake.catalog.faults = [lands_then(meanwhile)]
    outcome = stream.run(1, accept=word)
    assert isinstance(outcome, Committed)
    assert outcome.attempts > 1
    assert counted(lake) == expected(0, 1, 1, 2, 3, 4) + foreign


def test_a_lost_ledger_offers_no_way_to_write_a_batch_that_the_table_holds(lake: Lake) -> None:
    stream = Stream(lake).filled(2)
    set_property(lake, stream.key.ledger_property, None)
    refused = refusal_of(stream, 1, Reason.LEDGER_LOST)
    assert "lakesink restore <table> --sink events" in refused.action
    assert offered(refused).keys() == {"skip"}
    word = offered(refused)["skip"]
    with pytest.raises(BatchRefused):
        stream.run(1, accept=word.replace("skip", "commit"))
    assert isinstance(stream.run(1, accept=word), Committed)
    assert isinstance(stream.run(2), Committed)
    assert counted(lake) == expected(0, 1, 2)


def test_a_lost_ledger_passes_over_no_batch(lake: Lake) -> None:
    stream = Stream(lake).filled(2)
    set_property(lake, stream.key.ledger_property, None)
    assert offered(refusal_of(stream, 5, Reason.LEDGER_LOST)) == {}
    assert offered(refusal_of(stream, 0, Reason.LEDGER_LOST)) == {}, "batch 1 would come again after it"
    assert isinstance(stream.overrule(2), Committed)
    assert counted(lake) == expected(0, 1, 2)


def test_a_fork_or_a_new_sink_id_writes_no_batch_twice(lake: Lake) -> None:
    stream = Stream(lake).filled(3)
    branch_off(lake, "audit")
    forgetting(stream).run()
    for other in (Stream(lake, branch="audit", query="query-1"), Stream(lake, sink_id="another", query="query-1")):
        refused = refusal_of(other, 2, Reason.UNKNOWN_HISTORY)
        assert offered(refused).keys() == {"skip"}
        assert "written by sink 'events'" in refused.action
        earlier = refusal_of(other, 0, Reason.UNKNOWN_HISTORY)
        assert offered(earlier) == {}, "batches 1 and 2 would come again after it"
        gap = refusal_of(other, 5, Reason.UNKNOWN_HISTORY)
        assert "leaves batches 3 to 4 out permanently" in gap.action
        assert isinstance(other.overrule(3), Committed)
        assert isinstance(other.run(4), Committed)
        assert counted(lake, other.branch) == expected(0, 1, 2, 3, 4)


def test_a_word_left_in_the_code_is_good_for_one_lost_checkpoint(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    first = Stream(lake)
    first.run(0)
    first.run(1)
    second = Stream(lake, query="query-2")
    word = offered(refusal_of(second, 0, Reason.NEW_CHECKPOINT))["commit"]
    assert re.fullmatch(r"NewCheckpoint:0@1-[0-9a-f]{6}:commit", word)
    for batch_id in range(2):
        second.run(batch_id, accept=word)
    third = Stream(lake, query="query-3")
    with pytest.raises(BatchRefused) as refused:
        third.run(0, accept=word)
    assert refused.value.reason is Reason.NEW_CHECKPOINT
    assert word not in refused.value.action
    assert counted(lake) == expected(0, 0, 1, 1)
    assert f"accept={word}" in caplog.text


def test_a_word_that_does_not_apply_is_reported_once_a_run(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream(lake)
    sink = stream.sink(accept="Gap:7@1-000000:commit")
    for batch_id in range(3):
        stream.run_with(sink, batch_id)
    assert caplog.text.count("lakesink.accept.unused") == 1
    caplog.clear()
    used = stream.sink(accept=offered(refusal_of(stream, 5, Reason.GAP))["commit"])
    for batch_id in (5, 6):
        stream.run_with(used, batch_id)
    assert "lakesink.accept.unused" not in caplog.text
