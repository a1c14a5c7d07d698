"""The tables of the documents are those that the proof has written."""

import json
from pathlib import Path
from typing import Any

import pytest

from proof.__main__ import FIGURES, PAGES
from proof.page import as_markdown, as_text, renewed

DOCUMENT: dict[str, Any] = {"commit": "abc", "minutes": 1, "machine": "2 processors", "table": [["rows", "1 / 0 / 0"]]}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_what_the_proof_has_written(page: Path) -> None:
    assert renewed(page.read_text(), json.loads(FIGURES.read_text())) == page.read_text()


def test_a_table_takes_the_place_of_the_one_before() -> None:
    once = renewed(f"before\n{as_markdown(DOCUMENT)}\nafter", DOCUMENT | {"commit": "def"})
    assert once.startswith("before\n")
    assert once.endswith("\nafter")
    assert "`def`" in once
    assert "`abc`" not in once
    assert renewed(once, DOCUMENT | {"commit": "def"}) == once


def test_a_page_without_a_place_is_told() -> None:
    with pytest.raises(ValueError, match="no place"):
        renewed("nothing here", DOCUMENT)


def test_the_terminal_gets_the_same_figures() -> None:
    assert as_text(DOCUMENT["table"]) == "rows  1 / 0 / 0"
