"""The model, its configurations and its pages belong together. spin itself runs with the proof."""

import re
from pathlib import Path

import pytest

from proof.model.configurations import CONFIGURATIONS, COUNTED, LIVENESS, SWITCHES
from proof.model.page import DOCS, PAGE, STORIES_PAGE, renewed, stories, text
from proof.model.run import Checked, ModelFigures, SwitchedOff
from proof.model.spin import MODEL, CannotCheck, find_spin
from proof.model.steps import steps_table_markdown


def checked(name: str, what: str, broken: str = "", story: tuple[str, ...] = ()) -> Checked:
    return Checked(
        name, what, liveness=False, states=12_345, depth=6, seconds=0.1, memory_mib=9, broken=broken, story=story
    )


CHECKED = checked("network", "two drivers")
BROKEN = checked("storm", "a fault", "rows twice", ("a",))
HARMFUL = SwitchedOff("NO_TAG", "P3", "no ledger tag", "", "rows twice", 9, 0.1, ("driver 1 commits", "rows twice"), "")
HARMLESS = SwitchedOff("NO_SKIP", "P10", "asks later", "each attempt decides", "", 9, 0.1, (), "")


def figures(*configurations: Checked, switches: tuple[SwitchedOff, ...] = (HARMFUL, HARMLESS)) -> ModelFigures:
    return ModelFigures(configurations, switches, steps=35, strange_steps=(), stories=3, refused_stories=())


def budgets() -> set[str]:
    given = [one.defines for one in (*CONFIGURATIONS, *LIVENESS, *SWITCHES)]
    return {name for defines in (*given, *COUNTED) for name in defines}


def test_the_model_knows_every_switch_and_every_budget_that_is_given_to_it() -> None:
    spelled = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", MODEL.read_text()))
    assert {switch.name for switch in SWITCHES} | budgets() <= spelled


def test_every_switch_of_the_model_is_tried() -> None:
    asked = set(re.findall(r"#ifdef (\w+)", MODEL.read_text()))
    assert asked - budgets() - {"COUNT_STEPS"} <= {switch.name for switch in SWITCHES}


def test_a_rule_without_which_nothing_breaks_must_say_why() -> None:
    silent = SwitchedOff("NO_TAG", "P3", "no ledger tag", "", "", 9, 0.1, (), "")
    assert not figures(CHECKED).broken
    assert figures(CHECKED, switches=(silent,)).broken == ("NO_TAG: nothing breaks",)


def test_a_rule_that_is_called_harmless_and_is_not_is_told() -> None:
    harmful = SwitchedOff("NO_SKIP", "P10", "asks later", "each attempt decides", "rows twice", 9, 0.1, ("a",), "")
    assert figures(CHECKED, switches=(harmful,)).broken == ("NO_SKIP: rows twice",)


def test_the_page_takes_the_tables_that_the_model_came_to() -> None:
    page = (DOCS / PAGE).read_text()
    now = renewed(page, figures(CHECKED))
    assert "| network | two drivers | 12,345 | 6 | 0.1 | 9 | well |" in now
    assert f"| P3 | [`NO_TAG`]({STORIES_PAGE}#no_tag) | no ledger tag | rows twice | 2 |" in now
    assert "| P10 | `NO_SKIP` | asks later | nothing, in 9 states: each attempt decides |" in now
    assert renewed(now, figures(CHECKED)) == now


def test_the_page_shows_the_steps_that_the_checker_goes_by() -> None:
    assert steps_table_markdown() in (DOCS / PAGE).read_text()


def test_the_page_has_a_line_for_every_configuration_and_rule() -> None:
    page = (DOCS / PAGE).read_text()
    assert all(f"| {one.name} | {one.what} |" in page for one in (*CONFIGURATIONS, *LIVENESS))
    assert all(f"`{one.name}`" in page for one in SWITCHES)


def test_every_story_that_the_page_points_at_is_told() -> None:
    titles = {title.lower() for title in re.findall(r"^## (\w+)$", (DOCS / STORIES_PAGE).read_text(), re.MULTILINE)}
    assert set(re.findall(rf"{STORIES_PAGE}#(\w+)", (DOCS / PAGE).read_text())) == titles
    assert {switch.name.lower() for switch in SWITCHES if not switch.harmless} == titles


def test_a_story_is_told_step_by_step() -> None:
    assert "driver 1 commits\nrows twice\n```" in stories(figures(CHECKED))


def test_what_broke_is_told_with_what_to_do_next() -> None:
    told = text(figures(BROKEN))
    assert "BROKEN storm: rows twice" in told
    assert told.endswith("python -m proof.model --output json")


def test_a_machine_without_a_compiler_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotCheck, match="install gcc"):
        find_spin()
