"""Whoever follows every message to the letter doubles and loses no row without having been told."""

from collections import Counter

import pytest

from proof.simulator.advice import Followed, follow

pytestmark = pytest.mark.soak

SEEDS = (*range(12), 112, 309)
"""The last two found a message that did not say what is lost, and a rule that passed over an earlier sink id."""


@pytest.fixture(scope="module")
def reports() -> list[Followed]:
    return [follow(seed) for seed in SEEDS]


def test_who_follows_every_advice_is_told_what_it_does_to_the_rows(reports: list[Followed]) -> None:
    for report in reports:
        assert not report.broken, "\n".join([f"seed {report.seed}", *report.story, *report.broken])


def test_advices_of_many_kinds_are_followed(reports: list[Followed]) -> None:
    followed = sum((report.advices for report in reports), Counter[str]())
    assert {kind.partition(": ")[2] for kind in followed} >= {"accept", "rewind", "start there"}
    assert len(followed) >= 8
