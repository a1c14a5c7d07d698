"""Which cell comes next. Pure, but for the chance of a seed."""

import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

from proof.grid.cells import Cell

SPARK_SHARE = 0.3
SPARK_CELL_SECONDS = 30
"""About, of one cell on real Spark; none begins before as much of the time as that is its share."""


@dataclass(slots=True)
class Turns:
    """Cells without Spark and on it take turns by the time that they take, for one of the latter costs fifty others.

    Attributes:
        small: Cells without Spark that are left.
        on_spark: Cells on Spark that are left.
        seconds: That the former took.
        spark_seconds: That the latter took.
    """

    small: deque[Cell]
    on_spark: deque[Cell]
    seconds: float = 0.0
    spark_seconds: float = 0.0

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> "Turns":
        """Cells in this order, of either sort."""
        return cls(deque(cell for cell in cells if not cell.on_spark), deque(cell for cell in cells if cell.on_spark))

    def take(self) -> Cell | None:
        """The next cell; None if there is none."""
        due = self.spark_seconds + SPARK_CELL_SECONDS <= SPARK_SHARE * (self.seconds + self.spark_seconds)
        turn = self.on_spark if self.on_spark and (due or not self.small) else self.small
        return turn.popleft() if turn else None

    def took(self, cell: Cell, seconds: float) -> None:
        """It is done."""
        if cell.on_spark:
            self.spark_seconds += seconds
        else:
            self.seconds += seconds


def spread(cells: Sequence[Cell], seed: int) -> list[Cell]:
    """The cells in an order in which any first part holds something of each row and column."""
    shuffled = list(cells)
    random.Random(seed).shuffle(shuffled)
    met: Counter[tuple[str, str]] = Counter()
    turns: list[tuple[int, int, Cell]] = []
    for number, cell in enumerate(shuffled):
        turns.append((met[cell.point, cell.column], number, cell))
        met[cell.point, cell.column] += 1
    return [cell for _, _, cell in sorted(turns, key=lambda turn: turn[:2])]
