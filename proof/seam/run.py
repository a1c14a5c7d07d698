"""Random histories of batches with several targets, each judged after every driver by what its readers see."""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lakesink_protocol.errors import PartialBatch
from proof.oracle import Broken, Promise, rows_once
from proof.seam.targets import MAIN, Died, Driver, World, expected

BATCHES = 5
LONGEST_LIFE = 24
"""More calls than a batch takes."""
SEEDS_A_LOOK = 500


@dataclass(slots=True)
class SeamFigures:
    """What the histories came to; `broken` has a line for each promise that one of them broke."""

    histories: int = 0
    drivers: int = 0
    deaths: int = 0
    rivals: int = 0
    completed: int = 0
    broken: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {name: getattr(self, name) for name in self.__slots__}


def run(first_seed: int, seeds: int, seconds: float, progress: Callable[[str], None]) -> SeamFigures:
    """At least so many histories, and more until the time is used up."""
    figures, ends, seed = SeamFigures(), time.monotonic() + seconds, first_seed
    while figures.histories < seeds or time.monotonic() < ends:
        for broken in _History(random.Random(seed), figures).run():
            figures.broken.append(f"seed {seed}: {broken}")
        seed += 1
        figures.histories += 1
        if figures.histories % SEEDS_A_LOOK == 0:
            progress(f"{figures.histories:,} histories, {len(figures.broken)} broken")
    return figures


@dataclass(slots=True)
class _History:
    random: random.Random
    figures: SeamFigures
    world: World = field(default_factory=World)

    def run(self) -> list[Broken]:
        broken: list[Broken] = []
        for batch_id in range(BATCHES):
            while self.random.random() < 0.7:
                self._lives(batch_id, self._driver())
                broken += self._judged(batch_id, batch_id + 1)
            Driver(self.world).run(batch_id)
            broken += self._judged(batch_id + 1, batch_id + 1)
        return broken

    def _driver(self, *, meets: bool = True) -> Driver:
        """A driver with a random life, which may meet a rival at a random call."""
        driver = Driver(self.world, calls=self.random.randrange(LONGEST_LIFE))
        if meets and self.random.random() < 0.5:
            at = self.random.randrange(LONGEST_LIFE)
            driver.meets = at, lambda: self._lives(driver.batch_id, self._driver(meets=False), rival=True)
        return driver

    def _lives(self, batch_id: int, driver: Driver, *, rival: bool = False) -> None:
        self.figures.drivers += 1
        self.figures.rivals += rival
        jobs = self.world.jobs
        try:
            driver.run(batch_id)
        except Died:
            self.figures.deaths += 1
        except PartialBatch:
            raise AssertionError("nothing fails here but processes") from None
        else:
            self.figures.completed += self.world.jobs == jobs

    def _judged(self, least: int, most: int) -> list[Broken]:
        """Each target shows the rows of so many batches, old or new; all show the new ones if the main one does."""
        seen, old, new = self.world.seen(), expected(least), expected(most)
        broken: list[Broken] = []
        for name in new:
            found, before = seen.get(name, Counter()), old.get(name, Counter())
            if least == most or found != before:
                broken += rows_once(found, new[name])
        main = self.world.targets.get(MAIN)
        if main is not None and most - 1 in main.batches and seen != new:
            broken.append(Broken(Promise.READERS_SEE_WHOLE_BATCHES, "the main target has a batch that others lack"))
        return broken
