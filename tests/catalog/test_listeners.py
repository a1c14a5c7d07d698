"""A caller's listener sees a batch step by step and changes nothing; only a failpoint stops a batch."""

from pathlib import Path

import pytest

from lakesink_catalog.failpoints import VARIABLE, FailpointReached
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol import events
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_protocol.verdict import Commit, Skip
from testkit.builders import Lake, Stream, counted, expected

BEGUN = ["Decided", "BatchPrepared", "RecordDue", "RecordStored", "BatchRecorded"]
"""No `FileClosing`: a task has only the listeners of its own process."""
SENT = ["Decided", "CommitDue", "CommitAnswered", "CommitShown", "BatchInTable", "CommitEnded", "BatchLanded"]


class Seen:
    """Keeps every event."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def __call__(self, event: events.Event) -> None:
        self.events.append(event)

    @property
    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def stream(tmp_path: Path, seen: Seen) -> Stream:
    return Stream(Lake.make(tmp_path), listeners=LISTENERS.also(seen))


def fails(event: events.Event) -> None:
    raise RuntimeError(f"cannot listen to {event}")


def test_a_listener_sees_the_steps_of_a_batch_in_order(stream: Stream, seen: Seen) -> None:
    outcome = stream.run(0)
    assert isinstance(outcome, Committed)
    assert seen.names == [*BEGUN, *SENT]
    begun, prepared, sent, ended = seen.events[0], seen.events[1], seen.events[6], seen.events[10]
    assert isinstance(begun, events.Decided)
    assert isinstance(begun.verdict, Commit)
    assert prepared == events.BatchPrepared(0, outcome.snapshot_id)
    assert sent == events.CommitDue(0, outcome.snapshot_id, None, None)
    assert ended == events.CommitEnded(0, outcome)


def test_a_listener_sees_a_replay_that_is_skipped(stream: Stream, seen: Seen) -> None:
    first = stream.run(0)
    assert isinstance(first, Committed)
    seen.events.clear()
    assert stream.run(0) == AlreadyCommitted(first.snapshot_id)
    decided, found = seen.events
    assert isinstance(decided, events.Decided)
    assert isinstance(decided.verdict, Skip)
    assert isinstance(found, events.BatchInTable)
    assert found.snapshot_id == first.snapshot_id


def test_a_listener_sees_a_lost_answer(stream: Stream, seen: Seen) -> None:
    stream.lake.catalog.faults = [stream.lake.catalog.arrives_late]
    stream.run(0)
    assert events.CommitUnknown(0, 1, "TimeoutError: no answer") in seen.events


def test_a_listener_that_fails_changes_no_outcome(tmp_path: Path, seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream(Lake.make(tmp_path), listeners=LISTENERS.also(fails).also(seen))
    assert isinstance(stream.run(0), Committed)
    assert isinstance(stream.run(1), Committed)
    assert counted(stream.lake) == expected(0, 1)
    assert seen.names == [*BEGUN, *SENT] * 2
    lines = [line for line in caplog.messages if line.startswith("lakesink.listener.failed listener=function event=")]
    assert len(lines) == len(seen.events)


def test_a_failpoint_stops_the_batch_after_the_other_listeners(
    stream: Stream, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "after-prepared@0=raise")
    with pytest.raises(FailpointReached):
        stream.run(0)
    assert seen.names == ["Decided", "BatchPrepared", "RecordDue", "RecordStored", "BatchAborted"]
    monkeypatch.delenv(VARIABLE)
    outcome = stream.run(0)
    assert isinstance(outcome, Committed)
    assert outcome.recovered
    assert counted(stream.lake) == expected(0)


def test_an_event_is_a_value() -> None:
    assert events.CommitNotShown(3, 1) == events.CommitNotShown(3, 1)
    with pytest.raises(AttributeError):
        events.CommitNotShown(3, 1).attempt = 2  # type: ignore[misc] # it is frozen
