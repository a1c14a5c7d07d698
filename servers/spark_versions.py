"""Other versions of PySpark, each in a Python environment that else holds what this one holds.

The environment has its own PySpark and py4j; every other package is found where this environment has it. So only the
version of PySpark differs, and the second environment costs one PySpark.
"""

import hashlib
import subprocess
import sys
import sysconfig
import venv
from functools import partial
from pathlib import Path

from servers.jars import ROOT
from servers.missing import Missing
from servers.once import made_once

FOLDER = ROOT / ".tools" / "pyspark"
LONGEST_SECONDS = 1800


class PySparkMissing(Missing):
    """This PySpark cannot be had on this machine, in one sentence with what to do."""


def requirements(version: str) -> Path:
    """What is installed for a minor version.

    Args:
        version: Such as ``4.2``.
    """
    return ROOT / "requirements" / f"pyspark-{version}.txt"


def versions() -> list[str]:
    """The minor versions that there are beside the one of this environment, oldest first."""
    return sorted(path.stem.removeprefix("pyspark-") for path in requirements("*").parent.glob("pyspark-*.txt"))


def installed(version: str) -> Path:
    """The Python that has a version of PySpark, installed if it is not here yet. Several processes may ask at once.

    Args:
        version: One of `versions`.

    Raises:
        PySparkMissing: pip cannot install it.
    """
    name = f"{version}-{hashlib.sha256(requirements(version).read_bytes()).hexdigest()[:12]}"
    return made_once(FOLDER / name, partial(_install, version)) / "bin" / "python"


def _install(version: str, home: Path) -> None:
    venv.create(home, symlinks=True)
    [packages] = home.glob("lib/*/site-packages")
    # addsitedir, and not a bare path: what is installed for development is found by files of the same kind.
    (packages / "beside.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    call = [*pip, "--require-hashes", "--no-deps", "--ignore-installed", "--no-build-isolation"]
    call += ["-r", str(requirements(version))]
    done = subprocess.run(call, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    if done.returncode:
        raise PySparkMissing(
            f"PySpark {version} cannot be installed for {sys.version.split()[0]};"
            f" run it again when the registry answers. {done.stderr[-2000:]}"
        )
