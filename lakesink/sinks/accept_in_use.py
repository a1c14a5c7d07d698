"""Reports an accepted refusal that overrules nothing."""

import logging
from dataclasses import dataclass

from lakesink_protocol.accept import Accept
from lakesink_protocol.verdict import Commit, Verdict

logger = logging.getLogger("lakesink")


@dataclass(slots=True)
class AcceptInUse:
    """Warns once a run if an `Accept` overrules nothing: a leftover option would mislead readers of the code."""

    accept: Accept | None
    _settled: bool = False

    def decided(self, verdict: Verdict, where: str) -> None:
        """Check a verdict that was decided with this `Accept`; `where` names table, sink and batch for the log."""
        if self.accept is None or self._settled:
            return
        self._settled = True
        if not isinstance(verdict, Commit) or not verdict.accepted:
            logger.warning("lakesink.accept.unused %s accept=%s: it did not apply; remove it", where, self.accept)
