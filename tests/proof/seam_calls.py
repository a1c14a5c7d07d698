"""The calls of the seam in their order: the coordinator runs a batch into a sink and a log that note each call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import WriteError
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.two_phase import Durability, TaskWriter, TwoPhaseCommitSink
from lakesink_protocol.votes import Votes

_BATCH = Batch(7, "query", "fingerprint", start="", end="")
_NAME = "sink"


@dataclass(frozen=True, slots=True)
class _Writer:
    def write(self, task: int, batches: Any) -> bytes:
        raise NotImplementedError("no task is run")


@dataclass(frozen=True, slots=True)
class _Open:
    prepared_log: "_Log"
    writer: TaskWriter = field(default_factory=_Writer)


@dataclass(frozen=True, slots=True)
class _Ready:
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Log:
    calls: list[str]
    holds: bool

    def find(self, batch: Batch) -> Mapping[str, Mapping[str, Any]] | None:  # noqa: ARG002 - as the seam has it
        self.calls.append("find")
        return {_NAME: {}} if self.holds else None

    def put(self, batch: Batch, payloads: Mapping[str, Mapping[str, Any]]) -> None:  # noqa: ARG002 - as above
        self.calls.append("put")

    def landed(self, batch: Batch) -> None:  # noqa: ARG002 - as above
        self.calls.append("landed")


class _Sink(TwoPhaseCommitSink[_Open, _Ready]):
    name = _NAME
    durability = Durability.PREPARED_SURVIVES

    def __init__(self, calls: list[str], log: "_Log", *, has: bool) -> None:
        self.calls, self.log, self.has = calls, log, has

    def begin(self, batch: Batch) -> _Open | AlreadyCommitted:  # noqa: ARG002 - as above
        self.calls.append("begin")
        return AlreadyCommitted(None) if self.has else _Open(self.log)

    def recover(self, transaction: _Open, payload: Mapping[str, Any]) -> _Ready | None:  # noqa: ARG002 - as above
        self.calls.append("recover")
        return _Ready()

    def pre_commit(self, transaction: _Open, receipts: Sequence[bytes]) -> _Ready:  # noqa: ARG002 - as above
        self.calls.append("pre_commit")
        return _Ready()

    def commit(self, transaction: _Open, prepared: _Ready) -> Outcome | None:  # noqa: ARG002 - as above
        self.calls.append("commit")
        return Committed(1, 1)

    def abort(self, transaction: _Open) -> None:  # noqa: ARG002 - as above
        self.calls.append("abort")


def calls_of(*, has: bool = False, prepared: bool = False, writes: bool = True) -> list[str]:
    """The calls of the coordinator for one batch.

    Args:
        has: True if the target has the batch.
        prepared: True if an earlier run left a prepared record.
        writes: False if a task fails.
    """
    calls: list[str] = []

    def write(_: Mapping[str, TaskWriter]) -> Votes:
        calls.append("write")
        if not writes:
            raise WriteError("WRITE_FAILED", "A task failed.", data="Nothing is in.", action="Start again.")
        return Votes.in_order({_NAME: (b"receipt",)})

    try:
        run_batch(_BATCH, [_Sink(calls, _Log(calls, prepared), has=has)], write)
    except WriteError:
        assert not writes, "only a failing task ends a batch here"
    return calls
