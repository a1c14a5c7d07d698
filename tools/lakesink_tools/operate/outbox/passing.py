"""Which errors of an outbox may pass by themselves, and how long it waits before it tries again. Pure."""

from dataclasses import dataclass, field

from lakesink_protocol.catalogue import PREFIX
from lakesink_protocol.errors import LakesinkError

LONGEST_SECONDS = 30.0
_SHORTEST_SECONDS = 1.0
_PASSING = frozenset(
    PREFIX + code
    for code in ("KAFKA_UNREACHABLE", "KAFKA_FAILED", "COMMIT_UNRESOLVED", "CATALOG_UNREACHABLE", "STORAGE_UNREACHABLE")
)


def may_pass(error: LakesinkError) -> bool:
    """True if a server was away, or the outcome of a commit is unknown: the next attempt reads the ledger topic."""
    return error.code in _PASSING


@dataclass(slots=True)
class Pauses:
    """The pauses after errors that follow each other; each is twice as long as the one before, up to a limit."""

    next_seconds: float = field(default=_SHORTEST_SECONDS, init=False)

    def after_error(self) -> float:
        """The seconds to wait now."""
        seconds = self.next_seconds
        self.next_seconds = min(2 * seconds, LONGEST_SECONDS)
        return seconds

    def after_success(self) -> None:
        """Begin again with the shortest one."""
        self.next_seconds = _SHORTEST_SECONDS
