"""The tools that only a release needs, in an environment of their own: they have many dependencies of no other use."""

import hashlib
import subprocess
import venv
from pathlib import Path

from release.tree import ROOT
from servers.missing import Missing
from servers.once import made_once

REQUIREMENTS = ROOT / "requirements" / "release.txt"
_FOLDER = ROOT / ".tools" / "release"
_LONGEST_SECONDS = 600


class ToolsMissing(Missing):
    """The tools cannot be had on this machine, in one sentence with what to do."""


def installed() -> Path:
    """The environment of the tools, made if these versions are not here yet."""
    return made_once(_FOLDER / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12], _install)


def _install(home: Path) -> None:
    venv.create(home, with_pip=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    call = [*pip, "-r", str(REQUIREMENTS)]
    done = subprocess.run(call, capture_output=True, text=True, timeout=_LONGEST_SECONDS, check=False)
    if done.returncode:
        raise ToolsMissing(f"twine cannot be installed; run it again when the index answers. {done.stderr[-2000:]}")
