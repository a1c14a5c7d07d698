"""The tables of the documents are those that the proof has written."""

import json
from pathlib import Path
from typing import Any

import pytest

from proof.__main__ import FIGURES, PAGES, slice_of
from proof.outcome import Budget
from proof.page import GENERATED, as_markdown, as_text, table, together
from proof.parts import PARTS, SEEDED

DOCUMENT: dict[str, Any] = {
    "machine": "2 processors",
    "parts": {"one": {"commit": "abc", "seconds": 7, "lines": [["rows", "1 / 0 / 0"]], "broken": 0}},
}
LATER: dict[str, Any] = {
    "machine": "2 processors",
    "parts": {"two": {"commit": "def", "seconds": 8, "lines": [["kills", "5"]], "broken": 1}},
}
ORDER = {"two": None, "one": None}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_what_the_proof_has_written(page: Path) -> None:
    assert GENERATED.renewed(page.read_text(), PAGES[page](json.loads(FIGURES.read_text()))) == page.read_text()


def test_a_table_takes_the_place_of_the_one_before() -> None:
    once = GENERATED.renewed(f"before\n{as_markdown(DOCUMENT)}\nafter", as_markdown(LATER))
    assert once.startswith("before\n")
    assert once.endswith("\nafter")
    assert "| kills | 5 |" in once
    assert "`abc`" not in once
    assert GENERATED.renewed(once, as_markdown(LATER)) == once


def test_parts_that_were_not_run_keep_what_they_came_to() -> None:
    both = together(DOCUMENT, LATER, ORDER)
    assert list(both["parts"]) == ["two", "one"]
    assert list(table(both)) == [("kills", "5"), ("rows", "1 / 0 / 0"), ("promises broken", "1")]


def test_a_page_without_a_place_for_figures_is_an_error() -> None:
    with pytest.raises(ValueError, match="no place"):
        GENERATED.renewed("nothing here", as_markdown(DOCUMENT))


def test_the_terminal_gets_the_same_figures() -> None:
    assert as_text(DOCUMENT).splitlines() == ["rows             1 / 0 / 0", "promises broken  0"]


@pytest.mark.parametrize("slices", [1, 2, 7, 8, 13])
def test_the_slices_of_the_proof_have_every_part_and_every_seed_once(slices: int) -> None:
    cut = [slice_of(f"{number}/{slices}") for number in range(1, slices + 1)]
    whole = [name for names, _ in cut for name in names if name not in SEEDED]
    assert sorted([*whole, *SEEDED]) == sorted(PARTS)
    for seeded in SEEDED:
        ranges = [
            Budget(0, 5, short=True, progress=print, share=share).seeds(100) for names, share in cut if seeded in names
        ]
        assert sorted(seed for first, count in ranges for seed in range(first, first + count)) == [*range(5, 105)]
    assert slice_of(None) == (list(PARTS), (1, 1))
