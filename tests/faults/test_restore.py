"""A lost ledger entry is set again from the newest marks, in one fenced commit that changes no row."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lakesink_catalog.read.history import sinks
from lakesink_protocol.errors import BatchRefused, CommitUnresolved, Reason, SettingsError
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.ledger import parse_entry
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_protocol.retry import RetryPolicy
from lakesink_tools.operate.remove_sink import Restoring
from testkit.builders import Lake, Stream, counted, expected
from testkit.maintenance import append_foreign, branch_off, expire, expire_like_java, roll_back, set_property
from tests.faults.test_forget import forgetting


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.make(tmp_path)


def restoring(stream: Stream, retries: int = 5) -> Restoring:
    return Restoring(stream.lake.table, stream.key, RetryPolicy(num_retries=retries), stream.chance.effects())


def entry(stream: Stream) -> str | None:
    return stream.lake.table().properties.get(stream.key.ledger_property)


def lose(stream: Stream) -> str:
    before = entry(stream)
    assert before is not None
    set_property(stream.lake, stream.key.ledger_property, None)
    return before


@pytest.mark.parametrize("kind", SinkKind)
@pytest.mark.parametrize("branch", ["main", "audit"])
def test_the_entry_is_what_it_was_and_the_stream_goes_on(lake: Lake, branch: str, kind: SinkKind) -> None:
    if branch != "main":
        append_foreign(lake)
        branch_off(lake, branch)
    stream = Stream(lake, branch=branch, kind=kind)
    for batch_id in range(3):
        stream.run(batch_id)
    append_foreign(lake, branch)
    before, rows = lose(stream), counted(lake, branch)
    restored = restoring(stream).run()
    assert entry(stream) == before == restored.entry.to_json()
    assert counted(lake, branch) == rows
    assert [state.trouble for state in sinks(lake.table())] == [None]
    assert stream.run(2) == AlreadyCommitted(stream.snapshot_of(2))
    assert isinstance(stream.run(3), Committed)
    assert counted(lake, branch) == rows + expected(3)
    assert restoring(stream).run().snapshot_id is None, "there is nothing to restore"


def test_after_a_late_batch_was_accepted_the_entry_is_not_taken_back(lake: Lake) -> None:
    stream = Stream(lake)
    for batch_id in range(3):
        stream.run(batch_id)
    stream.overrule(stream.batch(1, end=9))
    before = lose(stream)
    assert restoring(stream).run().entry == parse_entry(before)
    assert isinstance(stream.run(2), AlreadyCommitted)


def test_what_was_rolled_back_is_not_restored(lake: Lake) -> None:
    stream = Stream(lake)
    for batch_id in range(4):
        stream.run(batch_id)
    roll_back(lake, stream.snapshot_of(1))
    lose(stream)
    assert restoring(stream).run().entry.batch_id == 1
    assert isinstance(stream.run(2), Committed)
    assert counted(lake) == expected(0, 1, 2)


@pytest.mark.parametrize("expiry", [expire, expire_like_java])
def test_a_newest_batch_that_only_the_tag_keeps_is_told_and_found(lake: Lake, expiry: Callable[[Lake], None]) -> None:
    stream = Stream(lake)
    stream.run(0)
    stream.run(1)
    foreign = append_foreign(lake) + append_foreign(lake)
    expiry(lake)
    before = lose(stream)
    with pytest.raises(BatchRefused) as refused:
        Stream(lake, query="query-2").run(0)
    assert refused.value.reason is Reason.LEDGER_LOST
    assert "from the newest batch in the table, 1, and" in refused.value.action
    assert [(state.sink, state.batch_id, state.trouble) for state in sinks(lake.table())] == [
        ("events", 1, Reason.LEDGER_LOST)
    ], "status and audit say what stops the stream"
    assert restoring(stream).run().entry == parse_entry(before)
    assert isinstance(stream.run(2), Committed)
    assert counted(lake) == expected(0, 1, 2) + foreign


@pytest.mark.parametrize("cut", [False, True], ids=["on the walk", "kept by the tag"])
def test_an_older_entry_that_somebody_put_back_is_no_success_and_is_restored(lake: Lake, *, cut: bool) -> None:
    stream = Stream(lake)
    stream.run(0)
    stream.run(1)
    older = entry(stream)
    stream.run(2)
    newest, foreign = entry(stream), expected()
    if cut:
        foreign = append_foreign(lake) + append_foreign(lake)
        expire_like_java(lake)
    set_property(lake, stream.key.ledger_property, older)
    with pytest.raises(BatchRefused) as refused:
        stream.run(3)
    assert refused.value.reason is Reason.LEDGER_DAMAGED
    assert "`lakesink restore <table> --sink events`" in refused.value.action
    assert restoring(stream).find() == parse_entry(newest or "")
    restored = restoring(stream).run()
    assert restored.snapshot_id is not None
    assert entry(stream) == newest == restored.entry.to_json()
    assert [state.trouble for state in sinks(lake.table())] == [None]
    assert isinstance(stream.run(3), Committed)
    assert counted(lake) == expected(0, 1, 2, 3) + foreign


def test_an_entry_of_another_table_is_not_taken_for_restored(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)
    before = entry(stream) or ""
    set_property(lake, stream.key.ledger_property, before.replace(str(lake.table().metadata.table_uuid), "another"))
    with pytest.raises(SettingsError, match="belongs to another table"):
        restoring(stream).run()


def test_a_sink_that_was_retired_stays_retired(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)
    forgetting(stream).run()
    with pytest.raises(SettingsError, match="forget` removed it"):
        restoring(stream).run()
    with pytest.raises(SettingsError, match="shows no batch of this sink"):
        restoring(Stream(lake, "unknown")).run()
    assert entry(stream) is None


def test_a_batch_that_lands_meanwhile_is_not_passed_over(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)
    lose(stream)
    stale = lake.table()
    stream.overrule(1)
    loads = iter([stale, stale])
    effects = stream.chance.effects()
    restored = Restoring(lambda: next(loads, None) or lake.table(), stream.key, effects=effects)
    assert restored.run().entry.batch_id == parse_entry(entry(stream) or "").batch_id == 1
    assert counted(lake) == expected(0, 1)


def test_an_answer_that_is_lost_is_looked_for(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)
    before = lose(stream)
    lake.catalog.faults = [lake.catalog.arrives_late]
    with pytest.raises(CommitUnresolved):
        restoring(stream, retries=0).run()
    lake.catalog.late[0]()
    assert restoring(stream).run().snapshot_id is None
    assert entry(stream) == before
