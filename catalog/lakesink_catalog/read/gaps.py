"""How long a sink usually takes from batch to batch, and from when on its silence is unusual. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import pairwise

RECENT = 100
"""Gaps that count: a stream whose pace changed is judged by its new pace."""
FEWEST = 5
PATIENCE = 3
SHORTEST_SILENCE = timedelta(minutes=1)
SHORTEST_SILENCE_OF_JOBS = timedelta(days=1)
"""A batch job may run often in one hour and not at all in the next."""


def silence_limit(committed: Iterable[datetime], shortest: timedelta = SHORTEST_SILENCE) -> timedelta | None:
    """The longest silence that is not unusual for a sink; None if too few batches show its pace.

    It is three times the second longest of the recent gaps between batches, and at least `shortest`. The longest gap
    does not count: it may be one outage. A median would miss the long gaps between the runs of a scheduled job.
    """
    gaps = [later - earlier for earlier, later in pairwise(sorted(committed))][-RECENT:]
    if len(gaps) < FEWEST:
        return None
    return max(PATIENCE * sorted(gaps)[-2], shortest)
