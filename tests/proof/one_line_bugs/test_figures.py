"""The list of known survivors is complete and has no stale entry, or the figures are not well."""

from pathlib import Path

import pytest

from proof.one_line_bugs import survivors
from proof.one_line_bugs.draw import Bug, bugs_in
from proof.one_line_bugs.figures import Figures
from proof.one_line_bugs.run import Result
from proof.one_line_bugs.survivors import Survivors

BUGS = bugs_in({"lakesink/parquet/toy.py": "def f(a, b):\n    return a < b <= a == b and a > b\n"})
BUG = BUGS[0]


def figures(*survived: Bug, known: Survivors, stale: tuple[str, ...] = ()) -> Figures:
    killed = [Result(bug, "tests/protocol/test_a.py::test_b") for bug in BUGS if bug not in survived] * 20
    return Figures("a", [*killed, *map(Result, survived)], (), known, stale, ())


@pytest.mark.parametrize(
    ("found", "broken"),
    [
        (figures(known=Survivors()), []),
        (figures(BUG, known=Survivors(open={BUG.id: "no test of equal values"})), []),
        (figures(BUG, known=Survivors()), ["survived, and is in no list"]),
        (figures(BUG, known=Survivors(open={BUG.id: " "})), ["is in the list without a reason"]),
        (figures(known=Survivors(), stale=("x",)), ["is in the list, and the sources have no such bug"]),
        (figures(*BUGS, known=Survivors(open={bug.id: "why" for bug in BUGS})), ["0.0% were killed, not 95%"]),
    ],
)
def test_the_rule(found: Figures, broken: list[str]) -> None:
    assert [what.partition(": ")[0] for what in found.broken] == broken


def test_an_open_bug_that_a_test_kills_leaves_the_list() -> None:
    [what] = figures(known=Survivors(open={BUG.id: "why"})).broken[:1]
    assert what.startswith("is in the list as open, and tests/protocol/test_a.py::test_b kills it")


def test_equivalent_bugs_do_not_count() -> None:
    found = Figures("a", [Result(BUGS[1], "tests/faults/test_a.py::test_b")], [BUG], Survivors({BUG.id: "why"}), (), ())
    assert (found.rate, found.broken) == (1, [])
    assert found.table().splitlines()[-1].split() == ["all", "2", "1", "0", "0", "1", "100.0%"]


def test_the_list_is_written_as_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "survivors.toml"
    known = Survivors({'a "b"': "why"}, {"c": "", "d": "x"})
    survivors.write(known, file)
    assert survivors.read(file) == known
    assert known.stale(["c"]) == ['a "b"', "d"]
    assert known.renewed(["e"], ["d"]) == Survivors({'a "b"': "why"}, {"c": "", "e": ""})
