"""Real processes show what each mutant does, in scenarios that are clean without it."""

from pathlib import Path

import pytest

from proof.mutants import MUTANTS
from proof.mutants.mutant import Mutant
from proof.mutants.scenarios import SCENARIOS, play, scenario_named

AT_ONCE = {"no dedupe", "conflict taken as rejected"}
"""Seen by every run of the tests: one over SQLite, one over REST."""

LONG = [pytest.mark.nightly]


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, id=one.name, marks=() if one.name in AT_ONCE else LONG) for one in MUTANTS],
)
def test_real_processes_show_the_mutant_and_nothing_without_it(mutant: Mutant, tmp_path: Path) -> None:
    scenario = scenario_named(mutant.scenario)
    assert play(scenario, tmp_path / "mutant", mutant)
    assert play(scenario, tmp_path / "sound") == []


def test_every_scenario_is_there_for_some_mutant() -> None:
    assert {scenario.name for scenario in SCENARIOS} == {mutant.scenario for mutant in MUTANTS}
