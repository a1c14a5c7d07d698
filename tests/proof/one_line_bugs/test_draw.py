"""One-line bugs are drawn from sources: the same seed gives the same bugs, and each is what it says."""

import ast
from textwrap import indent

import pytest

from proof.one_line_bugs.draw import bugs_in, changed, draw

FILE = "lakesink/parquet/toy.py"
TOY = """
def clamp(value, low, high):
    if value < low or value is None:
        raise ValueError("too low")
    return min(value, high)


def total(values):
    found = 0
    for value in values:
        if not value:
            continue
        found += value
    return found
"""


@pytest.mark.parametrize(
    ("line", "bugs"),
    [
        ("a = b < c", {"a = b <= c", "a = b >= c"}),
        ("a = b == c != d", {"a = b != c != d", "a = b == c == d"}),
        ("a = b not in c", {"a = b in c"}),
        ("a = b and c and d", {"a = b or c or d", "a = c and d", "a = b and d", "a = b and c"}),
        ("a = not b", {"a = b"}),
        ("a = b[1:]", {"a = b[2:]", "a = b[0:]"}),
        ("a = b[:c]", {"a = b[:c + 1]"}),
        ("a = f(True)", {"a = f(False)"}),
        ("a = any(b)", {"a = all(b)"}),
        ("a = sorted(b, key=len)", {"a = list(b)"}),
        ("a = b | c", {"a = b & c", "a = b", "a = c"}),
        ("a = b - c", {"a = b"}),
        ("if a: b = c", {"if not a:"}),
        ("f(a)", {"pass"}),
        ("a |= b", {"pass"}),
        ("raise ValueError(a < b)", {"pass"}),
        ("while a:\n    break", {"while not a:", "continue"}),
    ],
)
def test_each_kind_of_bug_makes_its_change(line: str, bugs: set[str]) -> None:
    found = bugs_in({FILE: f"def f(a, b, c, d):\n{indent(line, '    ')}"})
    assert {bug.after for bug in found} == bugs


@pytest.mark.parametrize(
    "source",
    [
        '"""1 < 2"""',
        "a: int | None = b",
        "assert a < b, c",
        "def f(a: A | B) -> A | B:\n    a = b",
        "def __repr__(self):\n    return a < b",
        "if TYPE_CHECKING:\n    a = b < c",
        "self.emit(Event(a < b))",
        "a = f'{b < c}'",
        "a = zip(b, c, strict=True)",
        "@dataclass(frozen=True)\nclass A:\n    size: int = 64",
        "Kind = A | B",
    ],
)
def test_words_types_and_sizes_have_no_bugs(source: str) -> None:
    assert bugs_in({FILE: source}) == []


def test_a_changed_source_has_the_bug_and_no_other_change() -> None:
    for bug in bugs_in({FILE: TOY}):
        source, with_bug = ast.unparse(ast.parse(TOY)).splitlines(), ast.unparse(changed(bug, TOY)).splitlines()
        [(before, after)] = [lines for lines in zip(source, with_bug, strict=True) if lines[0] != lines[1]]
        assert (before.strip(), after.strip()) == (bug.before, bug.after)


def test_a_seed_draws_the_same_bugs_and_another_seed_others() -> None:
    bugs = bugs_in({FILE: TOY})
    assert draw(bugs, "a", 5) == draw(bugs_in({FILE: TOY}), "a", 5)
    assert draw(bugs, "a", 5) != draw(bugs, "b", 5)


def test_rooms_take_turns() -> None:
    bugs = bugs_in({"lakesink/a/x.py": TOY, "lakesink/b/x.py": TOY})
    assert [bug.room for bug in draw(bugs, "a", 4)] == ["lakesink/a", "lakesink/b"] * 2


def test_an_id_is_of_one_bug_and_stays_when_lines_move() -> None:
    ids = [bug.id for bug in bugs_in({FILE: f"{TOY}\n{TOY}"})]
    assert len(set(ids)) == len(ids)
    assert [bug.id for bug in bugs_in({FILE: f"import os\n\n\n{TOY}\n{TOY}"})] == ids
