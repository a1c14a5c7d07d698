"""A bug is run against the tests of its line: some test kills it, or it survives."""

from pathlib import Path

import pytest

from proof.one_line_bugs import fast_tests
from proof.one_line_bugs.covering import Covering
from proof.one_line_bugs.draw import Bug, bugs_in
from proof.one_line_bugs.run import Result, Runner

FILE = "toy_with_bugs/toy.py"
TOY = """
def clamp(value, high):
    return min(value, high)


def count(steps):
    while steps > 0:
        steps -= 1
    return steps == 0
"""
TESTS = """
from toy_with_bugs.toy import clamp, count

def test_clamp():
    assert clamp(3, 2) == 2

def test_count():
    assert count(2)
"""
COSTS = {"tests/test_toy.py::test_clamp": 0.01, "tests/test_toy.py::test_count": 0.02}


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    for file, text in ((FILE, TOY), ("toy_with_bugs/__init__.py", ""), ("tests/test_toy.py", TESTS)):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    scratch.mkdir()
    monkeypatch.syspath_prepend(root)
    monkeypatch.setattr(fast_tests, "LEAST_SECONDS", 5)  # a fork of a worker that has run many tests needs some
    lines = {FILE: {line: frozenset(COSTS) for line in range(1, 10)}}
    return Runner(Covering(COSTS, lines=lines), scratch, seconds=5, root=root)


def toy(after: str) -> Bug:
    return next(bug for bug in bugs_in({FILE: TOY}) if bug.after == after)


@pytest.mark.soak
def test_a_killed_bug_a_surviving_one_and_one_without_end_are_told_apart(runner: Runner) -> None:
    killed, survives, endless = toy("return max(value, high)"), toy("steps -= 2"), toy("pass")
    results = {result.bug.after: result for result in runner.run([killed, survives, endless])}
    assert summary(results[killed.after]) == ("tests/test_toy.py::test_clamp", False, 1)
    assert summary(results[survives.after]) == ("", False, 2)
    assert summary(results[endless.after]) == ("tests/test_toy.py::test_count", True, 2)


def test_a_test_that_fails_without_a_bug_is_named(runner: Runner) -> None:
    file = runner.root / "tests/test_toy.py"
    file.write_text(file.read_text().replace("== 2", "== 1"))
    assert runner.failing(COSTS) == ["tests/test_toy.py::test_clamp"]


def summary(result: Result) -> tuple[str, bool, int]:
    return result.killer, result.timed_out, result.ran
