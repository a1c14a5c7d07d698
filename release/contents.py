"""Which files are in the wheel and in the sdist, and which of them should not be there, or are missing."""

import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from release.build import Built
from release.tree import LICENCE, files_of_packages, files_of_sdist, packages, version

_OF_METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", f"licenses/{LICENCE}", "top_level.txt"}
_OF_SDIST = {"PKG-INFO", "setup.cfg"}


def findings(built: Built) -> list[str]:
    """One sentence for each file that is missing or too many, and for each package without its mark of types."""
    metadata = {f"lakesink-{version()}.dist-info/{name}" for name in _OF_METADATA}
    return [
        *_differences(built.wheel, files_in_wheel(built.wheel), files_of_packages().keys() | metadata),
        *_differences(built.sdist, files_in_sdist(built.sdist), files_of_sdist() | _OF_SDIST),
        *(f"{name} has no py.typed." for name, folder in packages().items() if not (folder / "py.typed").is_file()),
    ]


def files_in_wheel(wheel: Path) -> set[str]:
    """Names in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def files_in_sdist(sdist: Path) -> set[str]:
    """Names in the sdist, without its folder and without what setuptools notes for itself."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    return {name for name in names if ".egg-info/" not in name}


def _differences(where: Path, found: set[str], expected: set[str]) -> Iterator[str]:
    yield from (f"{where.name} lacks {name}." for name in sorted(expected - found))
    yield from (f"{where.name} has {name}, which is not part of it." for name in sorted(found - expected))
