"""Warns about an option `accept` that overrules nothing."""

from dataclasses import dataclass, field

from lakesink_protocol.events import AcceptUnused, Listener
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.verdict import Commit, Verdict


@dataclass(slots=True)
class UnusedAcceptWarning:
    """Warns once in a run, after its first decision: a leftover option would mislead readers of the user's code."""

    accept: Accept | None
    kind: str
    target: str
    sink: str
    _done: bool = field(default=False, init=False)

    def after_decision(self, verdict: Verdict, batch_id: int, emit: Listener) -> None:
        """Warn if this `Accept` had no part in the verdict."""
        if self.accept is None or self._done:
            return
        self._done = True
        if not isinstance(verdict, Commit) or not verdict.accepted:
            emit(AcceptUnused(batch_id, self.kind, self.target, self.sink, str(self.accept)))
