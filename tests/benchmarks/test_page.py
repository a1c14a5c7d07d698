from typing import Any

import pytest

from benchmarks.page import BENCH, DATA, UPKEEP, Page, together
from benchmarks.result import Goal, Result


@pytest.mark.parametrize("page", [BENCH, UPKEEP], ids=["benchmarks", "maintenance"])
def test_page_and_picture_are_what_the_data_say(page: Page) -> None:
    document = page.known
    assert page.as_markdown(document) in page.text
    drawn = page.pictures(document)
    assert {name: (DATA / name).read_text() for name in drawn} == drawn


def test_every_goal_that_was_measured_is_on_the_page() -> None:
    page = BENCH.text
    document = BENCH.known
    names = [goal["name"] for result in document["results"] for goal in result["goals"]]
    assert all(name in page for name in names)


def run(measured: float) -> dict[str, Any]:
    goal = Goal("W9, speed", 2.0, measured, at_least=True)
    return {"machine": "one", "rounds": 5, "results": [Result("W9", "", ("sink",), (), (goal,)).to_json()]}


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (None, 2.1, "| 2.10x |  | once |"),
        (2.2, 2.1, "| 2.10x | 2.20x | yes |"),
        (1.9, 2.1, "| 2.10x | 1.90x | once |"),
        (2.2, 1.9, "| 1.90x | 2.20x | once |"),
        (1.8, 1.9, "| 1.90x | 1.80x | **no** |"),
    ],
)
def test_a_goal_is_reached_when_two_runs_reach_it(first: float | None, second: float, said: str) -> None:
    document: dict[str, Any] = {"results": []}
    for measured in (first, second):
        if measured is not None:
            document = together(document, run(measured), "commit")
    assert f"| W9, speed | >= 2x {said}" in BENCH.as_markdown(document)
