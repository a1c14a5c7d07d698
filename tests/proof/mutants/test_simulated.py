"""The simulator sees mutants, in scenarios that are clean without them: some of those that `make prove` runs all of."""

import pytest

from proof.mutants import MUTANTS
from proof.mutants.mutant import Mutant, Patches
from proof.mutants.simulated import catch, focused
from proof.mutants.tested import ROOT, TESTED, SeededBug

SEEDS = 200
MISHAPS = ("AttributeError", "KeyError", "TypeError", "NameError", "AssertionError", "UnboundLocalError")


@pytest.mark.parametrize("mutant", MUTANTS[::5], ids=lambda mutant: mutant.name)
@pytest.mark.soak
def test_the_simulator_sees_the_mutant_and_nothing_without_it(mutant: Mutant) -> None:
    caught = catch(mutant, range(mutant.focus.seed, mutant.focus.seed + SEEDS), focused(mutant.focus))
    assert caught is not None
    assert not any(mishap in caught.broken for mishap in MISHAPS), "it does not run, so that nobody need look for it"


def test_there_are_mutants_enough_and_each_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 18


@pytest.mark.parametrize("bug", [*MUTANTS, *TESTED], ids=lambda bug: bug.name)
def test_what_a_seeded_bug_replaces_is_there(bug: Mutant | SeededBug) -> None:
    patches = Patches()
    try:
        bug.put_in(patches)
    finally:
        patches.undo()


@pytest.mark.parametrize("bug", TESTED, ids=lambda bug: bug.name)
def test_the_test_of_a_seeded_bug_is_there(bug: SeededBug) -> None:
    file, _, name = bug.test.partition("::")
    assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()
