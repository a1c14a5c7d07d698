"""Which tests run a line stays known when other lines of the file change."""

from proof.one_line_bugs.covering import Covering
from proof.one_line_bugs.draw import Bug, bugs_in

FILE = "lakesink/parquet/toy.py"
TOY = "SMALL = sorted(SIZES)\n\n\ndef f(a, b):\n    a += 1\n    return a < b\n"


def bug_of(source: str, before: str) -> Bug:
    return next(bug for bug in bugs_in({FILE: source}) if bug.before == before)


def covering() -> Covering:
    lines = {5: frozenset({"one", "two"}), 6: frozenset({"two"})}
    return Covering({"one": 1, "three": 0, "two": 2}, sources={FILE: TOY}, lines={FILE: lines})


def test_a_statement_has_the_tests_that_run_it() -> None:
    assert list(covering().tests_of(bug_of(TOY, "return a < b"))) == ["two"]


def test_a_statement_that_only_an_import_runs_has_all_tests_and_first_those_of_the_file() -> None:
    assert list(covering().tests_of(bug_of(TOY, "SMALL = sorted(SIZES)"))) == ["one", "two", "three"]


def test_of_tests_that_cost_the_same_the_one_that_runs_fewer_lines_comes_first() -> None:
    lines = {4: frozenset({"batch"}), 5: frozenset({"batch", "direct", "slow"}), 6: frozenset({"batch"})}
    known = Covering({"batch": 1, "direct": 1, "slow": 4}, sources={FILE: TOY}, lines={FILE: lines})
    assert list(known.tests_of(bug_of(TOY, "a += 1"))) == ["direct", "batch", "slow"]


def test_a_moved_line_keeps_its_tests_and_a_new_one_has_those_of_the_line_before_it() -> None:
    changed = "import os\n" + TOY.replace("    return", "    a += 2\n    return")
    known = covering()
    known.carry_over({FILE: changed})
    assert list(known.tests_of(bug_of(changed, "a += 1"))) == ["one", "two"]
    assert list(known.tests_of(bug_of(changed, "a += 2"))) == ["one", "two"]
    assert list(known.tests_of(bug_of(changed, "return a < b"))) == ["two"]


def test_tests_of_a_changed_file_are_measured_again() -> None:
    known = Covering({"a.py::one": 1, "b.py::two": 2}, digests={"a.py": "1", "b.py": "2"})
    known.forget({"a.py"})
    assert (known.costs, known.digests) == ({"b.py::two": 2}, {"b.py": "2"})
