"""Turns at the table: a queue of drivers. A driver may take none, die in its turn, or stand still in it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from lakesink_catalog.connect.sql_waits import LOCK_SECONDS
from proof.simulator.world import Actor, World

TAKES_NONE = 0.2
"""How likely an attempt takes no turn: its lock failed, or it passed one over a short time ago."""
_LOOK_EVERY_MS = 250


@dataclass(eq=False)
class SimulatedTurns:
    """The turns at one table.

    Attributes:
        world: Clock and scheduler.
        outcomes: Told how often a driver waited, and how often in vain.
    """

    world: World
    outcomes: Counter[str]
    _queue: list[Actor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = Random(self.world.seed)  # so that nothing else of a seed depends on turns

    @contextmanager
    def at(self, _table: Any, _emit: Any) -> Iterator[None]:
        """As `lakesink_catalog.connect.turns.turn_at`."""
        me = self.world.current
        if me is None or self._random.random() < TAKES_NONE:
            yield
            return
        self._queue.append(me)
        try:
            self._wait(me)
            yield
        finally:
            if me in self._queue:
                self._queue.remove(me)

    def _wait(self, me: Actor) -> None:
        until_ms = self.world.now_ms + LOCK_SECONDS * 1000
        if self._first() is not me:
            self.outcomes["waited for a turn"] += 1
        while self._first() is not me:
            if self.world.now_ms >= until_ms:
                self._queue.remove(me)
                self.outcomes["passed over a turn"] += 1
                self.world.tell("passes its turn over")
                return
            self.world.sleep(_LOOK_EVERY_MS)

    def _first(self) -> Actor:
        """Who has the turn: the kernel, or the server, has taken the dead out of the queue."""
        self._queue = [actor for actor in self._queue if actor.alive]
        return self._queue[0]
