"""This machine's clock beside the clocks that leave their times in a catalog and a warehouse. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakesink.checks.doctor.finding import Finding, Part, Standing
from lakesink_catalog.commit.clock import CLOCK_TOLERANCE_MS

_SET_CLOCKS = (
    "Let all machines take their time from NTP (timedatectl set-ntp true). Until then lakesink keeps a table's snapshot"
    " times in order, but time travel by time and the ages of prepared batches are off."
)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A time that another clock told, between two looks at this machine's; all milliseconds since the epoch.

    Attributes:
        whose: The other clock, in words.
        before_ms: This machine's time before the other one was asked; None if it may have told its time long ago.
        told_ms: The other clock's time.
        after_ms: This machine's time afterwards.
    """

    whose: str
    before_ms: int | None
    told_ms: int
    after_ms: int

    @property
    def skew_ms(self) -> int:
        """How far the other clock is ahead for certain; below zero if it is behind."""
        if self.told_ms > self.after_ms:
            return self.told_ms - self.after_ms
        if self.before_ms is not None and self.told_ms < self.before_ms:
            return self.told_ms - self.before_ms
        return 0


def check_clock(part: Part, sightings: Sequence[Sighting]) -> Finding:
    """Warns of the worst skew above what lakesink takes for normal."""
    whose = ", ".join(sighting.whose for sighting in sightings)
    worst = max(sightings, key=lambda sighting: abs(sighting.skew_ms), default=None)
    if worst is None:
        return Finding(part, "clock", Standing.SKIPPED, "not compared: no other clock has told its time")
    if abs(worst.skew_ms) <= CLOCK_TOLERANCE_MS:
        return Finding(part, "clock", Standing.OK, f"within {CLOCK_TOLERANCE_MS // 1000} s of {whose}")
    side = "ahead of" if worst.skew_ms > 0 else "behind"
    found = f"{worst.whose}: {abs(worst.skew_ms) // 1000:,} s {side} this machine's clock"
    return Finding(part, "clock", Standing.WARNING, found, _SET_CLOCKS)
