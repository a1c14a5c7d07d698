"""``python -m release dist [--short]`` builds and checks; ``python -m release notes TAG`` prints a version's notes.

``--short`` installs the versions of the lock, without Spark. Otherwise it installs the newest versions, with Spark, and
copies the files that passed into ``dist``.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from release import checks, contents, environment
from release.build import Built, build
from release.notes import NotReleasable, check_address, check_tag, notes
from release.tree import ROOT, project, version
from servers.missing import Missing

DIST = ROOT / "dist"
Check = tuple[str, Callable[[], None]]
Done = TypeVar("Done")


def dist(*, short: bool) -> None:
    """Build, check everything, and keep what passed; the first check that fails ends it."""
    with TemporaryDirectory(prefix="lakesink-dist-") as work:
        (Path(work) / "built").mkdir()
        built = _timed("built", lambda: build(Path(work) / "built"))
        for name, check in (*_of_files(built), *_of_installation(built, Path(work), short=short)):
            _timed(name, check)
        if not short:
            checks.publish(built, DIST)
            print(f"Ready: {DIST / built.sdist.name} and {DIST / built.wheel.name}")


def _of_files(built: Built) -> Iterator[Check]:
    yield "exactly the files of the packages", lambda: _fail_for(contents.findings(built))
    yield "metadata that an index accepts (twine check)", partial(checks.metadata, built)


def _of_installation(built: Built, work: Path, *, short: bool) -> Iterator[Check]:
    empty = environment.make(work)
    if short:
        yield "installed into an empty environment, from the lock", partial(checks.installs_from_the_lock, built, empty)
    else:
        yield "installed with [spark] into an empty environment", partial(checks.installs_newest, built, empty)
    yield "lakesink --version, lakesink explain", partial(checks.answers, empty)
    yield "types seen from outside (mypy --strict)", partial(checks.is_typed, empty)
    if not short:
        yield "the README's first program", partial(checks.readme_runs, empty)
        yield "lakesink doctor", partial(checks.machine_is_well, empty)
    yield "uninstalled without a trace", partial(checks.removed_again, empty)


def _fail_for(findings: Sequence[str]) -> None:
    if findings:
        raise environment.Failed("\n".join(findings))


def _timed(name: str, act: Callable[[], Done]) -> Done:
    started = time.monotonic()
    done = act()
    print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
    return done


def main(arguments: Sequence[str]) -> None:
    """Run one of the two."""
    match arguments:
        case ["dist"] | ["dist", "--short"]:
            dist(short="--short" in arguments)
        case ["notes", tag]:
            check_tag(tag, version())
            check_address(project())
            print(notes((ROOT / "CHANGELOG.md").read_text(), version()), end="")
        case _:
            sys.exit("python -m release dist [--short] | notes TAG")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (environment.Failed, NotReleasable, Missing) as error:
        sys.exit(str(error))
