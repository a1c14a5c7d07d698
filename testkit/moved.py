"""Tests that went away, and the test that sees now the bug that they saw; `tests/moved.toml` lists them.

``python -m testkit.moved [PART]`` puts each bug into a copy of the sources, in which the named test must fail. With a
PART, only bugs in files, or seen by tests, whose name has it.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
_SOURCES = ("lakesink", "catalog", "protocol", "tools", "tests", "testkit", "pyproject.toml")


@dataclass(frozen=True, slots=True)
class Moved:
    """Tests that went away, with a line of a file that is `old`, and `new` with the bug that they saw."""

    gone: list[str]
    file: str
    old: str
    new: str
    seen_by: str


def moved() -> list[Moved]:
    """All that are listed."""
    return [Moved(**table) for table in tomllib.loads((ROOT / "tests" / "moved.toml").read_text())["moved"]]


def is_seen(one: Moved, folder: Path) -> bool:
    """True if the test passes in a copy of the sources, and fails with the bug."""
    for name in _SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    path = folder / one.file
    if _exit_code(one.seen_by, folder) != 0:
        return False
    path.write_text(path.read_text().replace(f"\n{one.old}\n", f"\n{one.new}\n"))
    return _exit_code(one.seen_by, folder) == 1  # others: no such test, or it cannot be imported


def _exit_code(test: str, folder: Path) -> int:
    python_path = os.pathsep.join(map(str, (folder, folder / "catalog", folder / "protocol", folder / "tools")))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": python_path}, capture_output=True, text=True, check=False
    )
    return done.returncode


if __name__ == "__main__":
    survived = 0
    for each in moved():
        if any(part in each.file + each.seen_by for part in sys.argv[1:] or [""]):
            with TemporaryDirectory() as place:
                seen = is_seen(each, Path(place))
            survived += not seen
            print("seen    " if seen else "SURVIVED", each.file, each.seen_by, flush=True)
    sys.exit(survived)
