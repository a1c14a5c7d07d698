"""Pythons that the executors of a cluster may have, made in seconds from what is installed here."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from servers.jars import ROOT

ANOTHER = "0.0.7"
NAMED = {"PYSPARK_PYTHON": "python3", "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
"""One name, by which the driver finds its own Python and each worker that of its machine."""


@dataclass(frozen=True)
class Pythons:
    """Each is made when it is first asked for.

    Attributes:
        folder: Where they lie.
    """

    folder: Path

    @cached_property
    def bare(self) -> Path:
        """Python and nothing else."""
        return self._made("bare")

    @cached_property
    def without(self) -> Path:
        """All that lakesink needs, but no lakesink."""
        return self._made("without", sysconfig.get_path("purelib"))

    @cached_property
    def released(self) -> Path:
        """lakesink as its wheel installs it."""
        return self._installed("released")

    @cached_property
    def another(self) -> Path:
        """Another version of lakesink."""
        python = self._installed("another")
        module = packages_of(python) / "lakesink" / "_version.py"
        module.write_text(re.sub(r'__version__ = "[^"]+"', f'__version__ = "{ANOTHER}"', module.read_text()))
        return python

    @cached_property
    def archive(self) -> Path:
        """What ``lakesink pack`` makes."""
        packed = self.folder / "executors.tar.gz"
        subprocess.run([str(Path(sys.executable).with_name("lakesink")), "pack", str(packed)], check=True)
        return packed

    @cached_property
    def _wheel(self) -> Path:
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
        call = [*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", str(self.folder), str(ROOT)]
        subprocess.run(call, check=True)
        [wheel] = self.folder.glob("lakesink-*.whl")
        return wheel

    def _made(self, name: str, *paths: str) -> Path:
        home = self.folder / name
        venv.create(home, symlinks=True)
        python = home / "bin" / "python"
        # Bare paths: Python looks there, but for no file that leads to an installation for development.
        (packages_of(python) / "beside.pth").write_text("\n".join(paths))
        return python

    def _installed(self, name: str) -> Path:
        python = self._made(name, sysconfig.get_path("purelib"))
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        # Not compiled: Python takes compiled code for that of a file of the same size changed within the same second.
        how = ["--no-deps", "--no-index", "--no-compile", "--ignore-installed"]
        subprocess.run([*pip, *how, str(self._wheel)], check=True)
        return python


def packages_of(python: Path) -> Path:
    """Where a Python's own packages are."""
    [packages] = python.parents[1].glob("lib/*/site-packages")
    return packages
