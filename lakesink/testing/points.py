"""The points that a batch comes to on its way through the seam, and a sink that says when it has come to one."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import Any

from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Outcome
from lakesink_protocol.two_phase import Payload, PreparedLog, TwoPhaseCommitSink, Write


class Phase(Enum):
    """What the coordinator has done next, in this order; a run that recovers does not write."""

    BEGIN = "begin"
    RECOVER = "recover"
    WRITE = "write"
    PRE_COMMIT = "pre-commit"
    RECORD = "record"
    COMMIT = "commit"
    LANDED = "landed"


@dataclass(frozen=True, slots=True)
class Point:
    """Just before or just after a phase.

    Attributes:
        phase: The phase.
        after: After it.
    """

    phase: Phase
    after: bool

    @property
    def committed(self) -> bool:
        """The batch is visible here."""
        return self.phase is Phase.LANDED or (self.phase is Phase.COMMIT and self.after)

    @property
    def recorded(self) -> bool:
        """The prepared record is durable here."""
        return self.phase in (Phase.COMMIT, Phase.LANDED) or (self.phase is Phase.RECORD and self.after)

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'}-{self.phase.value}"


CRASH_POINTS = tuple(Point(phase, after) for phase in Phase if phase is not Phase.RECOVER for after in (False, True))
"""Where the driver of a batch that is written dies."""

KILL_POINTS = tuple(point for point in CRASH_POINTS if point.after)
"""Where real processes are killed: before a phase is after the one before it."""

RECOVERY_POINTS = tuple(
    Point(phase, after) for phase in (Phase.BEGIN, Phase.RECOVER, Phase.COMMIT) for after in (False, True)
)
"""Where the driver of a batch that an earlier one prepared dies."""

Meet = Callable[[Point, Batch], None]
"""Called at every point. Raises `Died` to have the process end there, as far as the sink can tell."""

Within = Callable[[Phase], AbstractContextManager[object]]
"""Makes the context in which a phase runs."""


class Died(BaseException):
    """The process is gone: whatever comes after this is not heard by the sink."""


def pass_by(point: Point, batch: Batch) -> None:
    """Do nothing at a point."""


def plainly(phase: Phase) -> AbstractContextManager[object]:
    """Nothing special."""
    return nullcontext(phase)


class WatchedSink(TwoPhaseCommitSink[Any, Any]):
    """The sink under test, with somebody at every point.

    Args:
        sink: The sink.
        meet: Called at every point.
        within: Makes the context in which each phase runs.
    """

    def __init__(self, sink: TwoPhaseCommitSink[Any, Any], meet: Meet, within: Within = plainly) -> None:
        self.sink = sink
        self.name = sink.name
        self.durability = sink.durability
        self._meet = meet
        self._within = within
        self._dead = False
        self._batch: Batch | None = None

    @property
    def prepared_log(self) -> "WatchedLog":
        """The sink's own, watched too."""
        return WatchedLog(self.sink.prepared_log, self)

    def begin(self, batch: Batch) -> Any | AlreadyCommitted:
        """See `TwoPhaseCommitSink`."""
        self._batch = batch
        return self.at(Phase.BEGIN, lambda: self.sink.begin(batch))

    def recover(self, transaction: Any, payload: Payload) -> Any | None:
        """See `TwoPhaseCommitSink`."""
        return self.at(Phase.RECOVER, lambda: self.sink.recover(transaction, payload))

    def pre_commit(self, transaction: Any, receipts: Sequence[bytes]) -> Any:
        """See `TwoPhaseCommitSink`."""
        return self.at(Phase.PRE_COMMIT, lambda: self.sink.pre_commit(transaction, receipts))

    def commit(self, transaction: Any, prepared: Any) -> Outcome | None:
        """See `TwoPhaseCommitSink`."""
        found: Outcome | None = self.at(Phase.COMMIT, lambda: self.sink.commit(transaction, prepared))
        return found

    def abort(self, transaction: Any) -> None:
        """See `TwoPhaseCommitSink`; a process that is gone aborts nothing."""
        if not self._dead:
            self.sink.abort(transaction)

    def writing(self, write: Write) -> Write:
        """A job, watched too."""
        return lambda writers: self.at(Phase.WRITE, lambda: write(writers))

    def at(self, phase: Phase, call: Callable[[], Any]) -> Any:
        """One phase, with somebody before and after it."""
        assert self._batch is not None
        try:
            self._meet(Point(phase, after=False), self._batch)
            with self._within(phase):
                found = call()
            self._meet(Point(phase, after=True), self._batch)
        except Died:
            self._dead = True
            raise
        return found


@dataclass(frozen=True, slots=True)
class WatchedLog:
    """The prepared log of a watched sink."""

    log: PreparedLog
    sink: WatchedSink

    def find(self, batch: Batch) -> Mapping[str, Payload] | None:
        """See `PreparedLog`."""
        return self.log.find(batch)

    def put(self, batch: Batch, payloads: Mapping[str, Payload]) -> None:
        """See `PreparedLog`."""
        self.sink.at(Phase.RECORD, lambda: self.log.put(batch, payloads))

    def landed(self, batch: Batch) -> None:
        """See `PreparedLog`."""
        self.sink.at(Phase.LANDED, lambda: self.log.landed(batch))
