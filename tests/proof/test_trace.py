"""What real drivers do, whatever befalls them, is what the model's drivers do."""

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lakesink_catalog import failpoints
from lakesink_catalog.failpoints import FAILPOINTS, FailpointReached
from lakesink_protocol.coordinator import Write
from lakesink_protocol.errors import BatchRefused, CatalogError, CommitUnresolved
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes
from proof.model.checker import check
from proof.processes.harness import Stream as Processes
from testkit.builders import Lake, Stream
from testkit.maintenance import append_foreign, expire, roll_back, set_property
from testkit.tracing import VARIABLE, trace_sinks


class Log:
    """A trace being written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def steps(self) -> list[str]:
        """What happened, in words."""
        return [step_name(json.loads(line)) for line in self.lines()]


def step_name(said: Mapping[str, Any]) -> str:
    kind = said.get("verdict") or said.get("shows")
    return f"{said['event']}:{kind}" if kind else str(said["event"])


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "trace.jsonl"))
    trace_sinks(monkeypatch.setattr)
    return Log(tmp_path / "trace.jsonl")


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    stream = Stream(Lake.make(tmp_path))
    stream.run(0)
    return stream


@pytest.fixture(autouse=True)
def accepted(log: Log) -> Iterator[None]:
    """Whatever a test makes drivers do."""
    yield
    assert check(log.lines()) == []


WRITTEN = ["begin:commit", "prepared", "recorded"]
SENT = ["look:commit", "attempt"]
DONE = [*SENT, "answer:landed", "committed"]


def test_a_batch_is_seven_steps(stream: Stream, log: Log) -> None:
    stream.run(1)
    assert log.steps() == [*WRITTEN, *DONE] * 2


def test_a_sink_that_has_the_listeners_of_another_has_a_trace_of_its_own(stream: Stream, log: Log) -> None:
    Stream(stream.lake, listeners=stream.sink().effects.emit).run(1)
    assert log.steps()[7:] == [*WRITTEN, *DONE]


def test_a_prepared_batch_is_recovered(stream: Stream, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, "after-prepared@1=raise")
    with pytest.raises(FailpointReached):
        stream.run(1)
    monkeypatch.delenv(failpoints.VARIABLE)
    stream.run(1)
    assert log.steps()[7:] == ["begin:commit", "prepared", "aborted", "begin:commit", "recovered", *DONE]


def test_a_lost_answer_is_looked_after(stream: Stream, log: Log) -> None:
    stream.lake.catalog.faults = [applied_unanswered]
    stream.run(1)
    assert log.steps()[7:] == [*WRITTEN, *SENT, "answer:unknown", "look:skip", "committed"]


def test_a_batch_that_comes_again_is_skipped(stream: Stream, log: Log) -> None:
    stream.run(0)
    assert log.steps()[7:] == ["begin:skip"]


def test_a_rival_s_commit_is_found(stream: Stream, log: Log) -> None:
    rival = Stream(stream.lake)
    batch = stream.batch(1)
    stream.run_with(stream.sink(), batch, job=after(lambda: rival.run(1), stream.write(batch)))
    assert log.steps()[7:] == ["begin:commit", *WRITTEN, *DONE, "prepared", "recorded", "look:skip", "known"]


def test_a_refused_batch_ends_its_driver(stream: Stream, log: Log) -> None:
    with pytest.raises(BatchRefused):
        stream.run(5)
    assert log.steps()[7:] == ["begin:Gap"]


def test_a_rollback_bars_a_batch_on_its_way(stream: Stream, log: Log) -> None:
    append_foreign(stream.lake)
    before = stream.lake.head().snapshot_id
    stream.run(1)
    batch = stream.batch(2)
    job = after(lambda: roll_back(stream.lake, before), stream.write(batch))
    with pytest.raises(BatchRefused):
        stream.run_with(stream.sink(), batch, job=job)
    stream.run(1)
    assert log.steps()[14:] == [*WRITTEN, "look:RolledBack", "refused", *WRITTEN, *DONE]


def test_a_rollback_has_the_batch_that_it_undid_written_again(stream: Stream, log: Log) -> None:
    before = stream.lake.head().snapshot_id
    stream.run(1)
    batch = stream.batch(1)
    roll_back(stream.lake, before)

    def rival_whose_batch_is_undone() -> None:
        Stream(stream.lake).run(1)
        roll_back(stream.lake, before)

    first = after(rival_whose_batch_is_undone, stream.write(batch))
    stream.run_with(stream.sink(), batch, job=once(first, stream.write(batch)))
    assert log.steps()[-10:] == ["recorded", "look:commit", "again", *WRITTEN, *DONE]


def test_attempts_that_prove_nothing_end_unresolved(stream: Stream, log: Log) -> None:
    set_property(stream.lake, "commit.retry.num-retries", "1")
    stream.lake.catalog.faults = [stream.lake.catalog.arrives_late] * 2
    with pytest.raises(CommitUnresolved):
        stream.run(1)
    assert log.steps()[7:] == [*WRITTEN, *[*SENT, "answer:unknown"] * 2, "look:commit", "unresolved"]


def test_a_late_request_and_its_replay_are_one_commit(stream: Stream, log: Log) -> None:
    set_property(stream.lake, "commit.retry.num-retries", "0")
    stream.lake.catalog.faults = [stream.lake.catalog.arrives_late]
    with pytest.raises(CommitUnresolved):
        stream.run(1)
    stream.lake.catalog.late.pop()()
    stream.run(1)
    assert log.steps()[-1] == "begin:skip"


def test_foreign_commits_and_expiry_between_batches_leave_the_chain_whole(stream: Stream) -> None:
    for batch_id in (1, 2, 3):
        append_foreign(stream.lake)
        expire(stream.lake)
        stream.run(batch_id)


def test_a_table_that_is_gone_when_the_commit_looks_fails_it(stream: Stream, log: Log) -> None:
    batch = stream.batch(1)
    job = after(lambda: stream.lake.catalog.drop_table("demo.events"), stream.write(batch))
    with pytest.raises(CatalogError):
        stream.run_with(stream.sink(), batch, job=job)
    assert log.steps()[7:] == [*WRITTEN, "failed"]


def test_processes_killed_at_every_point_take_the_model_s_steps(tmp_path: Path, log: Log) -> None:
    points = [name for name, point in FAILPOINTS.items() if not point.needs]
    drivers = Processes(tmp_path, batches=len(points), environment={VARIABLE: str(log.path)})
    for batch, name in enumerate(points):
        assert drivers.run(f"{name}@{batch}=kill").process.exitcode == -signal.SIGKILL
    assert drivers.run().code is None
    assert log.steps().count("recovered") == 2
    assert log.steps().count("committed") == len(points) - 1  # who dies after the call does not come to say so


def test_a_trace_that_cannot_be_written_stops_nobody(
    stream: Stream, log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, str(log.path / "no folder"))
    stream.run(1)
    assert "lakesink.listener.failed listener=Trace" in caplog.text


def applied_unanswered(apply: Callable[[], Any]) -> Any:
    """A fault: carried out, and the answer is lost."""
    apply()
    raise TimeoutError("no answer")


def after(deed: Callable[[], object], write: Write) -> Write:
    """A job that runs while somebody does something."""

    def job(writers: Mapping[str, TaskWriter]) -> Votes:
        deed()
        return write(writers)

    return job


def once(first: Write, then: Write) -> Write:
    """A job that is another one when it runs again."""
    jobs = iter([first, then])

    def job(writers: Mapping[str, TaskWriter]) -> Votes:
        return next(jobs)(writers)

    return job
