"""What the tree says about its distribution: version, metadata, packages, and the files that belong into it."""

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LICENCE = "LICENSE"
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_ALSO_SHIPPED = {"CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"}


def version() -> str:
    """The version, from the one place that has it."""
    [found] = _VERSION.findall((ROOT / "lakesink" / "_version.py").read_text())
    return str(found)


def project() -> dict[str, Any]:
    """The metadata of the project, as it declares them."""
    return dict(_settings()["project"])


def packages() -> dict[str, Path]:
    """The import packages of the distribution and their folders, as setuptools is configured to find them."""
    found = _settings()["tool"]["setuptools"]["packages"]["find"]
    names = [pattern.rstrip("*") for pattern in found["include"]]
    return {name: ROOT / where / name for name in names for where in found["where"] if (ROOT / where / name).is_dir()}


def files_of_packages() -> dict[str, Path]:
    """What an installation contains: name inside the wheel, and place in the tree."""
    return {
        f"{name}/{path.relative_to(folder)}": path
        for name, folder in packages().items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def files_of_sdist() -> set[str]:
    """What the archive of sources contains: the packages at their places, and the few files that a build needs."""
    return _ALSO_SHIPPED | {str(path.relative_to(ROOT)) for path in files_of_packages().values()}


def _settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())
