"""Where the time of one call goes: functions are timed from outside, and none of them knows.

Each lap has only what no lap within it has, so that the laps of a batch come to the whole of it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

P = ParamSpec("P")
T = TypeVar("T")
OTHER = "other"
"""Of a phase, or of a whole batch: what none of the laps within it has."""


class Kind(Enum):
    """What a call of a timed function is."""

    BATCH = "one batch"
    PHASE = "a part of a batch, not within another"
    STEP = "a part of a phase, or of another step"


@dataclass(frozen=True, slots=True)
class Timed:
    """A function that is timed.

    Attributes:
        kind: What a call of it is.
        name: Of its lap; a step's goes behind its phase's.
        owner: The class or module that has it.
        attribute: Its name there.
    """

    kind: Kind
    name: str
    owner: Any
    attribute: str


@dataclass(slots=True)
class Stopwatch:
    """Times one batch after the other, on one thread.

    Attributes:
        clock: Seconds.
        batches: Milliseconds by lap of every batch, in the order in which the laps ended.
    """

    clock: Callable[[], float] = time.perf_counter
    batches: list[dict[str, float]] = field(default_factory=list)
    _within: list[float] = field(default_factory=list)
    _phase: str = ""

    def around(self, timed: Timed, call: Callable[P, T]) -> Callable[P, T]:
        """The same call, timed; a part that is called outside of any batch is not."""

        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            if timed.kind is Kind.BATCH:
                self.batches.append({})
            elif not self._within:
                return call(*args, **kwargs)
            with self._lap(timed):
                return call(*args, **kwargs)

        return run

    @contextmanager
    def _lap(self, timed: Timed) -> Iterator[None]:
        phase, self._phase = self._phase, self._phase if timed.kind is Kind.STEP else timed.name
        started = self.clock()
        self._within.append(0.0)
        try:
            yield
        finally:
            taken, within = self.clock() - started, self._within.pop()
            if self._within:
                self._within[-1] += taken
            name = timed.name if timed.kind is Kind.STEP else OTHER
            name = f"{self._phase}: {name}" if within or timed.kind is Kind.STEP else self._phase
            self.batches[-1][name] = self.batches[-1].get(name, 0.0) + (taken - within) * 1000
            self._phase = phase


@contextmanager
def timing(stopwatch: Stopwatch, functions: Sequence[Timed]) -> Iterator[None]:
    """Time these functions within the block.

    Raises:
        AttributeError: A function is not there.
    """
    with ExitStack() as stack:
        for timed in functions:
            around = stopwatch.around(timed, getattr(timed.owner, timed.attribute))
            stack.enter_context(patch.object(timed.owner, timed.attribute, around))
        yield
