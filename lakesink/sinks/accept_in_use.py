"""An accepted word in one run: reported if it overrules nothing."""

import logging
from dataclasses import dataclass

from lakesink_protocol.accept import Accept
from lakesink_protocol.verdict import Commit, Verdict

logger = logging.getLogger("lakesink")


@dataclass(slots=True)
class AcceptInUse:
    """Reports an `Accept` that overrules nothing, once a run: left in the code it misleads whoever reads it.

    Attributes:
        accept: The word that was given, if any.
    """

    accept: Accept | None
    _settled: bool = False

    def decided(self, verdict: Verdict, where: str) -> None:
        """Take note of a verdict.

        Args:
            verdict: What was decided, with this word in hand.
            where: Table, sink and batch, for the log.
        """
        if self.accept is None or self._settled:
            return
        self._settled = True
        if not isinstance(verdict, Commit) or not verdict.accepted:
            logger.warning("lakesink.accept.unused %s accept=%s: it did not apply; remove it", where, self.accept)
