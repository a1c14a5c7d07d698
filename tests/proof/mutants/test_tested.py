"""Bugs that only a test of the product can see are seen by it, and nothing is seen without them."""

import pytest

from proof.mutants.tested import TESTED, SeededBug, SeededBugResult, run_tested


@pytest.mark.soak
@pytest.mark.parametrize("bug", TESTED, ids=lambda bug: bug.name)
def test_the_test_of_a_seeded_bug_fails_with_it_and_passes_without(bug: SeededBug) -> None:
    [result] = run_tested([bug])
    assert (result.seen, result.sound, result.broken) == (True, True, ())


def test_a_bug_that_its_test_does_not_see_is_a_hole() -> None:
    assert SeededBugResult("a bug", "P1", "test.py", seen=False, sound=True).broken == (
        "a bug: test.py does not see it",
    )
    assert SeededBugResult("a bug", "P1", "test.py", seen=True, sound=False).broken == (
        "test.py fails without a mutant",
    )
