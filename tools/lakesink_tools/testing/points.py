"""The points that a batch passes in the seam, and a sink that calls back at each point."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from lakesink_protocol.coordinator import Write
from lakesink_protocol.identity import Batch
from lakesink_protocol.outcome import AlreadyCommitted, Outcome
from lakesink_protocol.two_phase import Payload, PreparedLog, TaskWriter, Transaction, TwoPhaseCommitSink

R = TypeVar("R")


class Phase(Enum):
    """The next step of the coordinator, in this order; a run that recovers does not write."""

    BEGIN = "begin"
    RECOVER = "recover"
    WRITE = "write"
    PRE_COMMIT = "pre-commit"
    RECORD = "record"
    COMMIT = "commit"
    LANDED = "landed"


@dataclass(frozen=True, slots=True)
class Point:
    """The moment just before or just after a phase."""

    phase: Phase
    after: bool

    @property
    def committed(self) -> bool:
        """True if the batch is visible at this point."""
        return self.phase is Phase.LANDED or (self.phase is Phase.COMMIT and self.after)

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'}-{self.phase.value}"


CRASH_POINTS = tuple(Point(phase, after) for phase in Phase if phase is not Phase.RECOVER for after in (False, True))
"""Points at which a driver dies that runs a job."""

KILL_POINTS = tuple(point for point in CRASH_POINTS if point.after)
"""Points at which real processes are killed: the point before a phase is the point after the previous one."""

RECOVERY_POINTS = tuple(
    Point(phase, after) for phase in (Phase.BEGIN, Phase.RECOVER, Phase.COMMIT) for after in (False, True)
)
"""Points at which a driver dies that recovers a batch."""

AtPoint = Callable[[Point, Batch], None]
"""Called at every point. Raises `Died` to simulate the end of the process at this point."""

Within = Callable[[Phase], AbstractContextManager[object]]
"""Creates the context in which a phase runs."""


class Died(BaseException):
    """The process died: the sink receives no further calls."""


class WatchedSink(TwoPhaseCommitSink["WatchedTransaction", Any]):
    """The sink under test, with a callback at every point and a context around each phase."""

    def __init__(self, sink: TwoPhaseCommitSink[Any, Any], at_point: AtPoint, within: Within = nullcontext) -> None:
        self.sink = sink
        self.name = sink.name
        self.durability = sink.durability
        self._at_point = at_point
        self._within = within
        self._dead = False
        self._batch: Batch | None = None

    def begin(self, batch: Batch) -> "WatchedTransaction | AlreadyCommitted":
        self._batch = batch
        begun = self.at(Phase.BEGIN, lambda: self.sink.begin(batch))
        return begun if isinstance(begun, AlreadyCommitted) else WatchedTransaction(begun, self)

    def check_inputs(self, batch: Batch, transaction: "WatchedTransaction") -> None:
        self.sink.check_inputs(batch, transaction.begun)

    def recover(self, transaction: "WatchedTransaction", payload: Payload) -> Any | None:
        return self.at(Phase.RECOVER, lambda: self.sink.recover(transaction.begun, payload))

    def pre_commit(self, transaction: "WatchedTransaction", receipts: Sequence[bytes]) -> Any:
        return self.at(Phase.PRE_COMMIT, lambda: self.sink.pre_commit(transaction.begun, receipts))

    def commit(self, transaction: "WatchedTransaction", prepared: Any) -> Outcome | None:
        return self.at(Phase.COMMIT, lambda: self.sink.commit(transaction.begun, prepared))

    def abort(self, transaction: "WatchedTransaction") -> None:
        """See `TwoPhaseCommitSink`; a dead process aborts nothing."""
        if not self._dead:
            self.sink.abort(transaction.begun)

    def writing(self, write: Write) -> Write:
        """A job with the callbacks of its phase."""
        return lambda writers: self.at(Phase.WRITE, lambda: write(writers))

    def at(self, phase: Phase, call: Callable[[], R]) -> R:
        """Run one phase, with the callback before and after it."""
        assert self._batch is not None
        try:
            self._at_point(Point(phase, after=False), self._batch)
            with self._within(phase):
                found = call()
            self._at_point(Point(phase, after=True), self._batch)
        except Died:
            self._dead = True
            raise
        return found


@dataclass(frozen=True, slots=True)
class WatchedTransaction:
    """What the sink's `begin` returned, with its log watched too."""

    begun: Transaction
    sink: WatchedSink

    @property
    def writer(self) -> TaskWriter | None:
        """The writer of the sink."""
        return self.begun.writer

    @property
    def prepared_log(self) -> PreparedLog:
        """The log of the sink, with a callback before and after each change."""
        return self

    def find(self, batch: Batch) -> Mapping[str, Payload] | None:
        return self.begun.prepared_log.find(batch)

    def put(self, batch: Batch, payloads: Mapping[str, Payload]) -> None:
        self.sink.at(Phase.RECORD, lambda: self.begun.prepared_log.put(batch, payloads))

    def landed(self, batch: Batch) -> None:
        self.sink.at(Phase.LANDED, lambda: self.begun.prepared_log.landed(batch))
