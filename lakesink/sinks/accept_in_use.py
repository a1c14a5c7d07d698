"""Reports an accepted refusal that overrules nothing."""

from dataclasses import dataclass

from lakesink_protocol.accept import Accept
from lakesink_protocol.events import AcceptUnused, Listener
from lakesink_protocol.verdict import Commit, Verdict


@dataclass(slots=True)
class AcceptInUse:
    """Warns once a run if an `Accept` overrules nothing: a leftover option would mislead readers of the code."""

    accept: Accept | None
    kind: str
    target: str
    sink: str
    _settled: bool = False

    def decided(self, verdict: Verdict, batch_id: int, emit: Listener) -> None:
        """Check a verdict that was decided with this `Accept`."""
        if self.accept is None or self._settled:
            return
        self._settled = True
        if not isinstance(verdict, Commit) or not verdict.accepted:
            emit(AcceptUnused(batch_id, self.kind, self.target, self.sink, str(self.accept)))
