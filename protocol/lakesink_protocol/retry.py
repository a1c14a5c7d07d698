"""The only retry in lakesink: bounded attempts with growing, jittered waits. Pure: clock and sleep are injected."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of the commit loop, named after Iceberg's ``commit.retry.*``.

    The wait doubles with every attempt, up to `max_wait_ms`. No attempt starts after `total_timeout_ms`.
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


def attempts(policy: RetryPolicy, waiting: Waiting) -> Iterator[int]:
    """Numbers of the attempts from 1; waits before each one except the first. Ends early if the time is over."""
    deadline = waiting.monotonic_ms() + policy.total_timeout_ms
    for attempt in range(1, policy.num_retries + 2):
        if attempt > 1:
            longest = min(policy.max_wait_ms, policy.min_wait_ms * 2 ** min(attempt - 2, 30))
            wait = longest * (0.5 + waiting.jitter() / 2)
            if waiting.monotonic_ms() + wait > deadline:
                return
            waiting.sleep_ms(wait)
            if waiting.monotonic_ms() > deadline:
                return
        yield attempt
