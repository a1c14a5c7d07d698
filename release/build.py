"""Builds sdist and wheel from a copy of the tree, where no earlier build has left anything."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory

from release.tree import ROOT

_LEFTOVERS = ignore_patterns(
    ".*", "*.egg-info", "__pycache__", "build", "dist", "lakehouse", "lakesink-demo", "kafka-demo"
)
_SDIST = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"


@dataclass(frozen=True, slots=True)
class Built:
    """The two files that are published."""

    sdist: Path
    wheel: Path


def build(folder: Path) -> Built:
    """Build into an empty folder. The wheel is made from the sdist, so the sdist is known to be complete."""
    with TemporaryDirectory(prefix="lakesink-build-") as work:
        tree = copytree(ROOT, Path(work, "tree"), ignore=_LEFTOVERS)
        _run([sys.executable, "-c", _SDIST, str(folder)], tree)
        [sdist] = folder.glob("*.tar.gz")
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(sdist)], tree)
    [wheel] = folder.glob("*.whl")
    return Built(sdist, wheel)


def _run(call: list[str], folder: Path) -> None:
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"The distribution cannot be built.\n{done.stdout}{done.stderr}")
