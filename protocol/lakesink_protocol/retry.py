"""The only retry in lakesink: bounded attempts with growing, jittered waits. Pure: clock and sleep are injected."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

_MOST_DOUBLINGS = 4
"""After so many races lost in a row, the wait is sixteen times as long as an attempt and grows no more."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of the commit loop, named after Iceberg's ``commit.retry.*``.

    The wait doubles with every failed attempt, up to `max_wait_ms`. No attempt starts after `total_timeout_ms`. A race
    that was lost is no failure, see `Attempts.lost`.
    """

    num_retries: int = 20
    min_wait_ms: int = 100
    max_wait_ms: int = 10_000
    total_timeout_ms: int = 1_800_000


class Waiting(Protocol):
    """Clock, sleep and randomness for attempts."""

    @property
    def monotonic_ms(self) -> Callable[[], int]:
        """Clock for time-outs."""

    @property
    def sleep_ms(self) -> Callable[[float], None]:
        """Sleep."""

    @property
    def jitter(self) -> Callable[[], float]:
        """A number in [0, 1)."""


@dataclass(slots=True)
class Attempts:
    """Numbers of the attempts from 1; waits before each one except the first. Ends early if the time is over."""

    policy: RetryPolicy
    waiting: Waiting
    _lost_ms: int | None = field(default=None, init=False)

    def lost(self, took_ms: int) -> None:
        """Another writer was quicker than the current attempt, and it is proven that the attempt changed nothing.

        It does not count as a retry, and the next wait follows the duration of the attempt: how long others hold the
        target is a matter of their commits, not of a service that needs time to recover.
        """
        self._lost_ms = took_ms

    def __iter__(self) -> Iterator[int]:
        """Start the attempts."""
        now_ms = self.waiting.monotonic_ms
        deadline = now_ms() + self.policy.total_timeout_ms
        number, failures, losses = 1, 0, 0
        while True:
            self._lost_ms = None
            yield number
            if self._lost_ms is not None:
                losses += 1
                longest = self._lost_ms << min(losses - 1, _MOST_DOUBLINGS)
            else:
                failures, losses = failures + 1, 0
                longest = self.policy.min_wait_ms << min(failures - 1, 30)
            if failures > self.policy.num_retries:
                return
            wait = min(self.policy.max_wait_ms, longest) * (0.5 + self.waiting.jitter() / 2)
            if now_ms() + wait > deadline:
                return
            self.waiting.sleep_ms(wait)
            if now_ms() > deadline:
                return
            number += 1
