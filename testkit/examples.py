"""How many random examples tests try: few, and the same in each landing; many, and others each time, at night."""

import os

from hypothesis import HealthCheck, settings

MANY = os.environ.get("LAKESINK_EXAMPLES") == "many"
TIMES = 20
UNIMPORTANT = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


def examples(few: int) -> settings:
    """So many examples of `hypothesis`, many times as many at night. No test is timed: this machine may be busy."""
    count = few * TIMES if MANY else few
    return settings(max_examples=count, derandomize=not MANY, deadline=None, suppress_health_check=UNIMPORTANT)


def seeds(few: int) -> range:
    """The seeds of a test that draws its own chance."""
    return range(few * TIMES if MANY else few)
