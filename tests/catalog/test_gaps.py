"""A sink is silent for longer than usual by its own recent batches, and no single outage or burst decides that."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink_catalog.read.history import FEWEST, RECENT, SHORTEST_SILENCE_OF_JOBS, silence_limit

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def at(*gaps: float) -> list[datetime]:
    """Commit times with these minutes between them."""
    times = [START]
    for gap in gaps:
        times.append(times[-1] + gap * MINUTE)
    return times


def test_a_few_batches_show_no_pace() -> None:
    assert silence_limit([]) is None
    assert silence_limit(at(*[5] * (FEWEST - 1))) is None
    assert silence_limit(at(*[5] * FEWEST)) == 15 * MINUTE


def test_a_fast_stream_may_be_silent_for_a_minute() -> None:
    assert silence_limit(at(*[0.01] * 50)) == MINUTE


def test_one_outage_does_not_hide_the_next() -> None:
    assert silence_limit(at(*[5] * 20, 600, *[5] * 20)) == 15 * MINUTE


def test_a_job_that_runs_every_hour_is_not_stale_between_its_runs() -> None:
    assert silence_limit(at(*([0.1] * 20 + [58]) * 3)) == 3 * 58 * MINUTE


def test_a_stream_that_slowed_down_is_judged_by_its_new_pace() -> None:
    assert silence_limit(at(*[1] * 500, *[30] * RECENT)) == 90 * MINUTE
    assert silence_limit(at(*[30] * 500, *[1] * RECENT)) == 3 * MINUTE


def test_clocks_that_went_back_make_no_negative_gap() -> None:
    assert silence_limit(reversed(at(*[5] * 10))) == 15 * MINUTE


@given(st.lists(st.floats(0, 10_000), min_size=FEWEST, max_size=40))
def test_the_limit_is_longer_than_every_gap_but_the_longest(gaps: list[float]) -> None:
    limit = silence_limit(at(*gaps))
    assert limit is not None
    assert limit >= MINUTE
    assert sum(timedelta(minutes=gap) > limit for gap in gaps) <= 1


@pytest.mark.parametrize("times", [[START] * 10, [datetime.max.replace(tzinfo=UTC), *at(1, 1, 1, 1, 1, 1)]])
def test_odd_times_are_no_error(times: list[datetime]) -> None:
    assert silence_limit(times) is not None


def test_a_job_that_ran_often_within_a_minute_may_be_silent_for_a_day() -> None:
    assert silence_limit(at(*[0.1] * 11), SHORTEST_SILENCE_OF_JOBS) == 24 * 60 * MINUTE
    assert silence_limit(at(*[600] * 11), SHORTEST_SILENCE_OF_JOBS) == 3 * 600 * MINUTE
