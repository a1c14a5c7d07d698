"""What a workload found: a table to read, goals to be judged by, and all that was measured."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Cell = str | float | int


@dataclass(frozen=True, slots=True)
class Goal:
    """One bound on one figure.

    Attributes:
        name: What is bounded.
        bound: The bound.
        measured: The figure.
        at_least: True if the figure is to be no less than the bound, else no more.
        unit: Behind the figures.
    """

    name: str
    bound: float
    measured: float
    at_least: bool
    unit: str = "x"

    @property
    def reached(self) -> bool:
        """Whether the figure keeps the bound."""
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        said = "reached" if self.reached else "NOT reached"
        return f"{self.name}: {self.measured:.2f}{self.unit}, goal {sign} {self.bound:g}{self.unit}: {said}"


@dataclass(frozen=True, slots=True)
class Result:
    """What one workload found.

    Attributes:
        key: ``W1``.
        title: In words.
        heads: Names of the columns.
        rows: Cells of the table.
        goals: Judged.
        raw: All that was measured, for JSON.
        rounds: Runs of each sink behind a figure, where that is not what was asked for.
        failed: True if it could not be measured; the title says why.
    """

    key: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    goals: tuple[Goal, ...] = ()
    raw: Any = field(default=None)
    rounds: int | None = None
    failed: bool = False

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self) | {"goals": [asdict(goal) | {"reached": goal.reached} for goal in self.goals]}


@dataclass(frozen=True, slots=True)
class Ratio:
    """How much faster one is than another, pair by pair of one run."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, theirs: Sequence[float], ours: Sequence[float]) -> "Ratio":
        """Their times by ours."""
        pairs = [their / our for their, our in zip(theirs, ours, strict=True)]
        return cls(statistics.median(pairs), min(pairs), max(pairs))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}-{self.most:.2f})"


def quantile(values: Sequence[float], percent: int) -> float:
    """A percentile of values, as one of them."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
