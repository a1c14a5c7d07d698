"""Real processes show what mutants do, in scenarios that are clean without: two of those that `make prove` runs."""

from pathlib import Path

import pytest

from proof.mutants import MUTANTS, mutant_named
from proof.mutants.scenarios import SCENARIOS, play, scenario_named


@pytest.mark.parametrize("name", ["no dedupe", "conflict taken as rejected"], ids=["over SQLite", "over REST"])
@pytest.mark.soak
def test_real_processes_show_the_mutant_and_nothing_without_it(name: str, tmp_path: Path) -> None:
    mutant = mutant_named(name)
    scenario = scenario_named(mutant.scenario)
    assert play(scenario, tmp_path / "mutant", mutant)
    assert play(scenario, tmp_path / "sound") == []


def test_every_scenario_is_there_for_some_mutant() -> None:
    assert {scenario.name for scenario in SCENARIOS} == {mutant.scenario for mutant in MUTANTS}
