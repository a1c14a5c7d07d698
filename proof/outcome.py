"""What one part of the proof came to, as the table shows it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """What a part may take.

    Attributes:
        seconds: About how long.
        seed: First seed; all chance comes from it.
        short: True for the slice of every change: fewest processes, smallest models.
        progress: Told now and then how far it is.
        share: Of what is counted by seeds, this one of so many shares.
    """

    seconds: float
    seed: int
    short: bool
    progress: Progress
    share: tuple[int, int] = (1, 1)

    def seeds(self, whole: int) -> tuple[int, int]:
        """The first seed of the share of so many, and how many it has."""
        at, shares = self.share
        start, end = (whole * part // shares for part in (at - 1, at))
        return self.seed + start, end - start


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a part came to.

    Attributes:
        broken: What it found, a line each; empty if all was well.
        missing: What it could not run, and why, a line each.
        lines: Figures for the table: what, and how much.
        document: All of it, for programs.
        pages: Documents that show more than the table does: text by name in ``docs/evidence``.
    """

    broken: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    lines: tuple[tuple[str, str], ...] = ()
    document: dict[str, Any] = field(default_factory=dict)
    pages: Mapping[str, str] = field(default_factory=dict)


Part = Callable[[Budget], Outcome]
