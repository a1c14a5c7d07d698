"""A second driver on its own thread: it runs while the driver under test waits before a step.

A rival that needs a lock of the driver cannot end before the driver continues. The driver therefore continues after a
time limit, in parallel with the rival. A slow machine may cut a rival short, but no sink fails because of that.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from lakesink.testing.stream import Stream, cast_votes
from lakesink.testing.tagged_rows import SeenRows
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.two_phase import TaskWriter

PATIENCE_SECONDS = 5.0
BLOCKED_SECONDS = 0.2
"""Time limit for a rival if a lock blocked the previous one."""

END_SECONDS = 240.0

Ended = Outcome | Exception | None


@dataclass(slots=True)
class Party:
    """One driver, and the votes of its own jobs."""

    votes: list[frozenset[int]] = field(default_factory=list, init=False)  # the positions of each job
    ended: Ended = field(default=None, init=False)  # its outcome or its error

    def cast(self, writer: TaskWriter, batch_id: int, run: int) -> tuple[list[bytes], list[int]]:
        """Run a job of its own."""
        votes, positions = cast_votes(writer, batch_id, run)
        self.votes.append(frozenset(positions))
        return votes, positions

    def wrong_outcome(self, seen: frozenset[int]) -> str:
        """The error in its outcome, given the visible rows of the batch; empty if there is none."""
        if isinstance(self.ended, (Committed, AlreadyCommitted)) and not seen:
            return f"returned {_named(self.ended)}, but readers see no row of the batch"
        if not isinstance(self.ended, Committed):
            return ""
        if not self.ended.recovered and self.votes and seen != self.votes[-1]:
            return "returned Committed, but readers see the rows of the other driver"
        if self.ended.rows != len(seen):
            return f"returned Committed with {self.ended.rows} rows, but readers see {len(seen)}"
        return ""

    def __str__(self) -> str:
        return _named(self.ended)


@dataclass(slots=True)
class Rival:
    """The other driver."""

    run: Callable[[Party], Ended]  # runs it as the given party
    stream: Stream
    party: Party = field(default_factory=Party, init=False)
    saw: SeenRows | None = field(
        default=None, init=False
    )  # what readers saw after it, if it ended before the driver continued
    _thread: threading.Thread | None = field(default=None, init=False)

    @property
    def started(self) -> bool:
        """True if it was started."""
        return self._thread is not None

    def start(self, patience_seconds: float) -> bool:
        """Start it and wait. False if a lock of the driver blocks it."""
        self._thread = threading.Thread(target=self._go, name="lakesink-rival", daemon=True)
        self._thread.start()
        self._thread.join(patience_seconds)
        if self._thread.is_alive():
            return False
        self.saw = self.stream.seen()
        return True

    def finish(self) -> None:
        """Wait for its end, after the driver has ended."""
        assert self._thread is not None
        self._thread.join(END_SECONDS)
        assert not self._thread.is_alive(), "the rival still waits, although the other driver has ended"

    def _go(self) -> None:
        try:
            self.party.ended = self.run(self.party)
        except Exception as error:  # noqa: BLE001 - judged later
            self.party.ended = error


@dataclass(slots=True)
class Patience:
    """How long a driver waits for a rival: long, unless the previous rival was blocked."""

    blocked: bool = field(default=False, init=False)  # the previous rival was blocked
    places: set[str] = field(default_factory=set, init=False)  # places at which rivals were blocked

    def run(self, rival: Rival, place: str) -> None:
        """Start a rival and wait for it."""
        long = not self.blocked and place not in self.places
        self.blocked = not rival.start(PATIENCE_SECONDS if long else BLOCKED_SECONDS)
        if self.blocked:
            self.places.add(place)


def _named(ended: Ended) -> str:
    return "nothing" if ended is None else type(ended).__name__
