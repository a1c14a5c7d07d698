"""Warns about an option `accept` that overrules nothing."""

from dataclasses import dataclass, field

from lakesink_protocol.events import AcceptUnused, Listener
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.verdict import Commit, Verdict


@dataclass(slots=True)
class UnusedAcceptWarning:
    """Warns once in a run, after its first decision: a leftover option would mislead readers of the user's code.

    Attributes:
        is_shared: Another target of the batches may use the accept: its sink warns then.
        used: It has overruled a refusal.
    """

    accept: Accept | None
    kind: str
    target: str
    sink: str
    is_shared: bool = False
    used: bool = field(default=False, init=False)
    _done: bool = field(default=False, init=False)

    def after_decision(self, verdict: Verdict, batch_id: int, emit: Listener) -> None:
        """Warn if this `Accept` had no part in the verdict."""
        self.used |= isinstance(verdict, Commit) and bool(verdict.accepted)
        if self.accept is None or self.is_shared or self._done:
            return
        self._done = True
        if not self.used:
            emit(AcceptUnused(batch_id, self.kind, self.target, self.sink, str(self.accept)))
