"""Compares this machine's clock with the clocks of a catalog and its storage. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakesink_catalog.commit.clock import CLOCK_TOLERANCE_MS
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing

_SET_CLOCKS = (
    "Synchronize all machines with NTP (timedatectl set-ntp true). Until then lakesink keeps a table's snapshot"
    " times in order, but time travel by time and the ages of prepared batches are wrong."
)


@dataclass(frozen=True, slots=True)
class Sighting:
    """The time of another clock, between two readings of this machine's clock; all in milliseconds since the epoch."""

    whose: str  # the other clock, in words
    before_ms: int | None  # this machine's time before the request; None if the other time may be old
    told_ms: int  # the other clock's time
    after_ms: int  # this machine's time after the answer

    @property
    def skew_ms(self) -> int:
        """How far the other clock is certainly ahead; negative if it is behind."""
        if self.told_ms > self.after_ms:
            return self.told_ms - self.after_ms
        if self.before_ms is not None and self.told_ms < self.before_ms:
            return self.told_ms - self.before_ms
        return 0


def check_clock(part: Part, sightings: Sequence[Sighting]) -> Finding:
    """Warn of the largest skew above the tolerance."""
    whose = ", ".join(sighting.whose for sighting in sightings)
    worst = max(sightings, key=lambda sighting: abs(sighting.skew_ms), default=None)
    if worst is None:
        return Finding(part, "clock", Standing.SKIPPED, "not compared: the time of no other clock is known")
    if abs(worst.skew_ms) <= CLOCK_TOLERANCE_MS:
        return Finding(part, "clock", Standing.OK, f"within {CLOCK_TOLERANCE_MS // 1000} s of {whose}")
    side = "ahead of" if worst.skew_ms > 0 else "behind"
    found = f"{worst.whose}: {abs(worst.skew_ms) // 1000:,} s {side} this machine's clock"
    return Finding(part, "clock", Standing.WARNING, found, _SET_CLOCKS)
