"""The checks of what was built, each by a program that a user would run."""

import os
import re
import shutil
import sys
from pathlib import Path

from release import tools
from release.build import Built
from release.environment import EmptyEnvironment, Failed, run
from release.tree import ROOT, packages, version

_LOCK = ROOT / "requirements" / "dev.txt"
_FIRST_PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)
_LAST_LINE = re.compile(r"^0 1000 committed$", re.MULTILINE)


def metadata(built: Built) -> None:
    """An index would accept both files and show the README."""
    twine = [str(tools.installed() / "bin" / "python"), "-m", "twine", "--no-color"]
    run([*twine, "check", "--strict", str(built.sdist), str(built.wheel)], ROOT, os.environ)


def installs_from_the_lock(built: Built, empty: EmptyEnvironment) -> None:
    """The wheel alone, without an extra: enough for audits, the command line and executors."""
    empty.pip("install", "--constraint", str(_LOCK), str(built.wheel))


def installs_newest(built: Built, empty: EmptyEnvironment) -> None:
    """The wheel with Spark, in the newest versions that its ranges allow, PySpark too."""
    empty.pip("install", f"{built.wheel}[spark]")


def answers(empty: EmptyEnvironment) -> None:
    """The packages fit together, and the command line names this version and explains an error."""
    empty.pip("check")
    said = empty.run("lakesink", "--version") + empty.run("lakesink", "explain", "ROLLED_BACK")
    for expected in (f"lakesink, version {version()}", "LAKESINK_ROLLED_BACK"):
        if expected not in said:
            raise Failed(f"'{expected}' is not in what lakesink prints:\n{said}")


def is_typed(empty: EmptyEnvironment) -> None:
    """Mypy finds the types of every package from outside: a package without py.typed is an error for it."""
    program = empty.folder / "outside.py"
    program.write_text("".join(f"import {name}\n" for name in packages()))
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={empty.folder / 'mypy'}"]
    call = [*mypy, "--python-executable", str(empty.python), "--follow-imports=silent", program.name]
    run(call, empty.folder, empty.variables)


def readme_runs(empty: EmptyEnvironment) -> None:
    """The first program of the README commits its batch."""
    program = empty.folder / "example.py"
    program.write_text(_FIRST_PROGRAM.findall((ROOT / "README.md").read_text())[0])
    said = empty.run("python", program.name)
    if not _LAST_LINE.search(said):
        raise Failed(f"The README's program does not show its batch:\n{said}")


def machine_is_well(empty: EmptyEnvironment) -> None:
    """`lakesink doctor` finds nothing that failed."""
    empty.run("lakesink", "doctor")


def removed_again(empty: EmptyEnvironment) -> None:
    """After an uninstallation, no folder of ours is left."""
    empty.pip("uninstall", "--yes", "lakesink")
    [site] = empty.home.glob("lib/*/site-packages")
    left = [path.name for path in Path(site).iterdir() if path.name.startswith("lakesink")]
    if left:
        raise Failed(f"An uninstallation leaves {', '.join(left)}.")


def publish(built: Built, place: Path) -> None:
    """Put the two files, which have passed, into the folder that a release uploads."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for file in (built.sdist, built.wheel):
        shutil.copy(file, place)
