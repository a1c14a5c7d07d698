"""Measured points, for the curves and for what follows from their slopes. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram.

    Attributes:
        x: What grows.
        y: What was measured, with its unit.
        lines: Points by what they are of.
    """

    x: str
    y: str
    lines: Mapping[str, Points]


@dataclass(frozen=True, slots=True)
class Line:
    """The straight line through measured points, by least squares."""

    slope: float
    intercept: float

    @classmethod
    def through(cls, points: Points) -> "Line":
        """The line through two points or more."""
        return cls(*statistics.linear_regression([x for x, _ in points], [y for _, y in points]))

    def at(self, x: float) -> float:
        """The value at a size."""
        return self.intercept + self.slope * x


def points_of(results: Mapping[str, Mapping[str, Any]], key: str, y: str, label: str) -> Points:
    """Points of a result, by its key, the panel's `y` and the line's label."""
    [panel] = (panel for panel in results[key]["raw"] if panel["y"] == y)
    return [(x, value) for x, value in panel["lines"][label]]
