"""Clocks are compared as far as they can be: a time from long ago says nothing, one from the future does."""

import pytest

from lakesink_tools.checks.doctor.clock import Sighting, check_clock
from lakesink_tools.checks.doctor.finding import Part, Standing

MINUTE = 60_000
NOW = 1_900_000_000_000


@pytest.mark.parametrize(
    ("before", "told", "standing", "words"),
    [
        (NOW, NOW, Standing.OK, "within 60 s"),
        (NOW, NOW + MINUTE, Standing.OK, "within 60 s"),
        (NOW, NOW - MINUTE, Standing.OK, "within 60 s"),
        (NOW, NOW + 2 * MINUTE, Standing.WARNING, "120 s ahead of this machine's clock"),
        (NOW, NOW - 2 * MINUTE, Standing.WARNING, "120 s behind this machine's clock"),
        (None, NOW - 1000 * MINUTE, Standing.OK, "within 60 s"),
        (None, NOW + 2 * MINUTE, Standing.WARNING, "120 s ahead of this machine's clock"),
    ],
)
def test_another_clock_is_ahead_behind_or_near(before: int | None, told: int, standing: Standing, words: str) -> None:
    finding = check_clock(Part.CATALOG, [Sighting("the storage", before, told, NOW)])
    assert finding.standing is standing
    assert words in finding.found
    assert bool(finding.fix) is (standing is Standing.WARNING)


def test_the_worst_of_several_clocks_is_named() -> None:
    sightings = [
        Sighting("the catalog", NOW, NOW + 2 * MINUTE, NOW),
        Sighting("the storage", NOW, NOW - 5 * MINUTE, NOW),
    ]
    assert check_clock(Part.TABLE, sightings).found.startswith("the storage: 300 s behind")


def test_without_another_clock_nothing_is_claimed() -> None:
    assert check_clock(Part.TABLE, []).standing is Standing.SKIPPED
