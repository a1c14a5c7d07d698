"""The list of tests that went away names lines and tests that there are. `python -m testkit.moved` tries the bugs."""

import re

from testkit.moved import ROOT, moved


def test_each_bug_has_one_line_and_each_test_exists() -> None:
    for one in moved():
        lines = (ROOT / one.file).read_text().splitlines()
        assert lines.count(one.old) == 1, one
        assert one.old != one.new, one
        path, *_, function = one.seen_by.partition("[")[0].split("::")
        assert re.search(rf"^\s*def {function}\(", _text(path), re.MULTILINE), one


def _text(path: str) -> str:
    """A file of tests, with the contracts beside it that its classes inherit."""
    return "".join(file.read_text() for file in [ROOT / path, *(ROOT / "tests").rglob("*_contract.py")])
