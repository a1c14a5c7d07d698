"""An empty Python environment, and programs that run in it as on a machine that has nothing else."""

import os
import subprocess
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LONGEST_SECONDS = 1800
_OF_ANOTHER_PYTHON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class EmptyEnvironment:
    """A virtual environment with a folder for what its programs leave."""

    home: Path
    folder: Path

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.home / "bin" / "python"

    @property
    def variables(self) -> dict[str, str]:
        """The variables of its programs: the path, with the machine's own programs, and its Java."""
        kept = {name: os.environ[name] for name in ("JAVA_HOME", "TMPDIR") if name in os.environ}
        path = os.pathsep.join((str(self.home / "bin"), os.environ.get("PATH", os.defpath)))
        return {**kept, "HOME": str(self.folder), "PATH": path}

    def pip(self, *arguments: str) -> str:
        """Run pip, which may use this machine's configuration and cache."""
        environment = {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_PYTHON}
        call = [str(self.python), "-m", "pip", "--disable-pip-version-check", *arguments]
        return run(call, self.folder, environment)

    def run(self, program: str, *arguments: str) -> str:
        """Run one of its programs without any variable of ours; what it prints on its standard output."""
        return run([str(self.home / "bin" / program), *arguments], self.folder, self.variables)


def make(folder: Path) -> EmptyEnvironment:
    """An environment with pip alone, and an empty folder beside it."""
    made = EmptyEnvironment(folder / "environment", folder / "run")
    venv.create(made.home, with_pip=True)
    made.folder.mkdir()
    return made


class Failed(Exception):
    """A program ended with an error: the call, and the end of what it said."""


def run(call: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run a program to its end; what it prints on its standard output."""
    done = subprocess.run(
        call, cwd=folder, env=environment, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
    )
    if done.returncode:
        said = (done.stdout + done.stderr)[-3000:]
        raise Failed(f"{' '.join(call)} ended with {done.returncode}.\n{said}")
    return done.stdout
