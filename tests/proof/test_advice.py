"""Whoever follows every message to the letter doubles and loses no row without having been told."""

from collections import Counter

import pytest

from proof.simulator.advice import Followed, follow
from proof.simulator.side_advice import CHANGELOG, LETTERS, Kind
from proof.simulator.side_advice import follow as follow_beside

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


@pytest.mark.parametrize("kind", [LETTERS, CHANGELOG], ids=["dead letters", "changelog"])
def test_no_advice_loses_or_doubles_rows_of_a_side_table(kind: Kind) -> None:
    followed = Counter[str]()
    for seed in range(20):
        report = follow_beside(seed, kind)
        assert not report.broken, "\n".join([f"seed {report.seed}", *report.story, *report.broken])
        followed += report.advices
    assert {one for one in followed if kind.code in one} >= {f"{kind.code}: another side table"}
    assert any("roll the side table back" in one for one in followed)
