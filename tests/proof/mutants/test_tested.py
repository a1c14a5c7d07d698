"""Bugs that only a test of the product can see are seen by it, and nothing is seen without them."""

import pytest

from proof.mutants.tested import TESTED, SeededBugResult, run_tested


@pytest.mark.soak
def test_the_test_of_a_seeded_bug_fails_with_it_and_passes_without() -> None:
    [result] = run_tested(TESTED[:1])
    assert (result.seen, result.sound, result.broken) == (True, True, ())


def test_a_bug_that_its_test_does_not_see_is_a_hole() -> None:
    assert SeededBugResult("a bug", "P1", "test.py", seen=False, sound=True).broken == (
        "a bug: test.py does not see it",
    )
    assert SeededBugResult("a bug", "P1", "test.py", seen=True, sound=False).broken == (
        "test.py fails without a mutant",
    )
