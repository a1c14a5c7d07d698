"""What PyIceberg's clients of Glue and Hive need beside PyIceberg, in a folder of its own.

It is no part of the environment, which shows how lakesink is without it: a user who needs it installs it.
"""

import hashlib
import os
import sys
from pathlib import Path

from servers.jars import ROOT
from servers.missing import Missing
from servers.once import made_once, packages_in

REQUIREMENTS = ROOT / "requirements" / "catalog-clients.txt"
FOLDER = ROOT / ".tools" / "catalog-clients"


class CatalogClientsMissing(Missing):
    """The packages cannot be had on this machine, in one sentence with what to do."""


def made_importable() -> dict[str, str]:
    """Make the packages importable in this process.

    Returns:
        The variables that do the same for a child process.

    Raises:
        CatalogClientsMissing: See `installed`.
    """
    folder = str(installed())
    if folder not in sys.path:
        sys.path.append(folder)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), folder)))}


def installed() -> Path:
    """The folder of the packages, installed if they are not here yet. Several processes may ask at once.

    Raises:
        CatalogClientsMissing: pip cannot install them.
    """
    return made_once(FOLDER / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12], _install)


def _install(home: Path) -> None:
    if told := packages_in(home, REQUIREMENTS):
        raise CatalogClientsMissing(
            f"The clients of Glue and Hive cannot be installed; run it again when the index answers. {told}"
        )
