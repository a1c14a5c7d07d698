"""The steps that a driver may take: one table for the model, the checker and the document.

A driver is in one `State`; a step leads it to another. The drivers of ``lakesink.pml`` take these steps and no others,
each of them somewhere in its state space: `proof.model.run` has spin explore it and compares what was seen with this
table, line by line. The checker takes real drivers' logs through the same table.
"""

from dataclasses import dataclass
from enum import Enum

from testkit.tracing import TraceEvent


class State(Enum):
    """Where a driver is; ``lakesink.pml`` has the same names."""

    IDLE = "idle"  # no batch is open
    BEGUN = "begun"  # the batch may be written; its rows are being written
    VOTED = "voted"  # the manifests are written, no record yet
    READY = "ready"  # the record is durable, nothing was sent by this driver
    LOOKED = "looked"  # the newest look says commit
    SENT = "sent"  # a request is under way
    UNSURE = "unsure"  # the last attempt proved nothing
    LANDED = "landed"  # the answer shows the batch
    FOUND = "found"  # a look shows the batch
    BARRED = "barred"  # a look refuses the batch
    ENDED = "ended"  # the query has failed; a restart is another driver


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the table.

    Attributes:
        before: Where the driver is.
        event: What it does, with the kind of what it sees: ``look:commit``.
        after: Where that leads.
    """

    before: State
    event: str
    after: State

    @property
    def name(self) -> str:
        """As the model and the document spell it."""
        return f"{self.before.value} {self.event} {self.after.value}"


def _looks(before: State) -> tuple[Step, ...]:
    ways = (("commit", State.LOOKED), ("skip", State.FOUND), ("refuse", State.BARRED))
    return tuple(Step(before, f"{TraceEvent.LOOK.value}:{word}", after) for word, after in ways)


STEPS = (
    Step(State.IDLE, f"{TraceEvent.BEGIN.value}:commit", State.BEGUN),
    Step(State.IDLE, f"{TraceEvent.BEGIN.value}:skip", State.IDLE),
    Step(State.IDLE, f"{TraceEvent.BEGIN.value}:refuse", State.ENDED),
    Step(State.BEGUN, TraceEvent.RECOVERED.value, State.READY),
    Step(State.BEGUN, TraceEvent.PREPARED.value, State.VOTED),
    Step(State.BEGUN, TraceEvent.ABORTED.value, State.ENDED),
    Step(State.VOTED, TraceEvent.RECORDED.value, State.READY),
    Step(State.VOTED, TraceEvent.ABORTED.value, State.ENDED),
    *_looks(State.READY),
    *_looks(State.UNSURE),
    Step(State.READY, f"{TraceEvent.ANSWER.value}:unknown", State.UNSURE),
    Step(State.READY, TraceEvent.FAILED.value, State.ENDED),
    *_looks(State.LOOKED),
    Step(State.LOOKED, TraceEvent.ATTEMPT.value, State.SENT),
    Step(State.LOOKED, TraceEvent.AGAIN.value, State.IDLE),
    Step(State.LOOKED, f"{TraceEvent.ANSWER.value}:unknown", State.UNSURE),
    Step(State.LOOKED, TraceEvent.UNRESOLVED.value, State.ENDED),
    Step(State.LOOKED, TraceEvent.FAILED.value, State.ENDED),
    Step(State.SENT, f"{TraceEvent.ANSWER.value}:landed", State.LANDED),
    Step(State.SENT, f"{TraceEvent.ANSWER.value}:not-shown", State.UNSURE),
    Step(State.SENT, f"{TraceEvent.ANSWER.value}:unknown", State.UNSURE),
    Step(State.SENT, TraceEvent.FAILED.value, State.ENDED),
    Step(State.UNSURE, f"{TraceEvent.ANSWER.value}:unknown", State.UNSURE),
    Step(State.UNSURE, TraceEvent.UNRESOLVED.value, State.ENDED),
    Step(State.UNSURE, TraceEvent.FAILED.value, State.ENDED),
    Step(State.LANDED, TraceEvent.COMMITTED.value, State.IDLE),
    Step(State.FOUND, TraceEvent.COMMITTED.value, State.IDLE),
    Step(State.FOUND, TraceEvent.KNOWN.value, State.IDLE),
    Step(State.BARRED, TraceEvent.REFUSED.value, State.ENDED),
)
"""Every step that there is. A driver may also die anywhere, which leaves no line: its log just ends."""

AFTER = {(step.before, step.event): step.after for step in STEPS}


def steps_table_markdown() -> str:
    """The table as the document shows it."""
    lines = ["| in state | step | then |", "|---|---|---|"]
    lines += [f"| {step.before.value} | `{step.event}` | {step.after.value} |" for step in STEPS]
    return "\n".join(lines) + "\n"
