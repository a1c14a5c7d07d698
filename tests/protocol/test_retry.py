"""Attempts are bounded in number and time; each but the first waits, long after failures and shortly after races."""

from dataclasses import dataclass, field, replace

import pytest

from lakesink_protocol.retry import Attempts, RetryPolicy

PATIENT = RetryPolicy(num_retries=5, min_wait_ms=100, max_wait_ms=10_000, total_timeout_ms=1_000_000)


@dataclass
class Waits:
    """A clock that only sleeping moves, by some milliseconds too many; it begins at no round time."""

    chance: float = 0
    too_long_ms: int = 0
    now_ms: int = 7_777
    slept: list[float] = field(default_factory=list)

    def monotonic_ms(self) -> int:
        return self.now_ms

    def sleep_ms(self, wait: float) -> None:
        self.slept.append(wait)
        self.now_ms += int(wait) + self.too_long_ms

    def jitter(self) -> float:
        return self.chance


def run(policy: RetryPolicy, waits: Waits, *lost_after_ms: int | None) -> list[int]:
    """The numbers of the attempts: the first ones lose a race after a while, or fail if it is None; all others fail."""
    attempts, numbers = Attempts(policy, waits), []
    for number in attempts:
        numbers.append(number)
        took_ms = lost_after_ms[number - 1] if number <= len(lost_after_ms) else None
        if took_ms is not None:
            attempts.lost(took_ms)
    return numbers


@pytest.mark.parametrize("retries", [0, 1, 5])
def test_there_is_one_attempt_more_than_retries(retries: int) -> None:
    assert run(replace(PATIENT, num_retries=retries), Waits()) == list(range(1, retries + 2))


def test_the_first_attempt_does_not_wait() -> None:
    waits = Waits()
    assert next(iter(Attempts(PATIENT, waits))) == 1
    assert waits.slept == []


@pytest.mark.parametrize(
    ("chance", "longest_ms", "slept"),
    [
        (0, 10_000, [50, 100, 200, 400, 800]),
        (0.5, 10_000, [75, 150, 300, 600, 1_200]),
        (0.5, 400, [75, 150, 300, 300, 300]),
    ],
)
def test_the_wait_doubles_with_each_failure_up_to_the_longest_and_at_least_half_of_it_is_waited(
    chance: float, longest_ms: int, slept: list[float]
) -> None:
    waits = Waits(chance)
    run(replace(PATIENT, max_wait_ms=longest_ms), waits)
    assert waits.slept == slept


def test_a_lost_race_is_no_failure_and_the_wait_follows_the_attempt_up_to_sixteen_times() -> None:
    waits = Waits()
    assert run(replace(PATIENT, num_retries=0), waits, *[20] * 7) == list(range(1, 9))
    assert waits.slept == [10, 20, 40, 80, 160, 160, 160]


def test_an_attempt_that_lost_a_race_at_once_is_no_failure_either() -> None:
    waits = Waits()
    assert run(replace(PATIENT, num_retries=0), waits, 0, 0) == [1, 2, 3]
    assert waits.slept == [0, 0]


def test_races_and_failures_are_counted_apart_and_only_a_failure_ends_a_row_of_races() -> None:
    waits = Waits()
    assert run(replace(PATIENT, num_retries=2), waits, 20, 20, None, 20, 20, None) == list(range(1, 8))
    assert waits.slept == [10, 20, 50, 10, 20, 100]


@pytest.mark.parametrize(
    ("timeout_ms", "too_long_ms", "slept"),
    [
        (150, 0, [50, 100]),
        (149, 0, [50]),
        (151, 1, [50, 100]),
        (150, 1, [50]),
        (52, 3, [50]),
        (50, 0, [50]),
        (49, 0, []),
    ],
)
def test_no_wait_goes_beyond_the_time(timeout_ms: int, too_long_ms: int, slept: list[float]) -> None:
    waits = Waits(too_long_ms=too_long_ms)
    run(replace(PATIENT, total_timeout_ms=timeout_ms), waits)
    assert waits.slept == slept


@pytest.mark.parametrize(("too_long_ms", "numbers"), [(10, [1, 2]), (11, [1])])
def test_no_attempt_starts_after_the_time_if_the_sleep_was_too_long(too_long_ms: int, numbers: list[int]) -> None:
    waits = Waits(too_long_ms=too_long_ms)
    assert run(replace(PATIENT, total_timeout_ms=60), waits) == numbers
    assert waits.slept == [50]
