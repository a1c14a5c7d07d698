"""Prometheus's own programs, unpacked from the Debian package into ``.tools/prometheus``: no service is installed."""

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from servers.jars import ROOT
from servers.missing import Missing
from servers.once import made_once

FOLDER = ROOT / ".tools" / "prometheus"
PACKAGE = "prometheus"
LONGEST_SECONDS = 600


class PrometheusMissing(Missing):
    """Prometheus cannot be had on this machine, in one sentence with what to do."""


def promtool() -> Path:
    """The checker of rules and metrics: this machine's own, or that of the package. Several processes may ask at once.

    Raises:
        PrometheusMissing: No such program, and no package of it.
    """
    found = shutil.which("promtool")
    return Path(found) if found else made_once(FOLDER / PACKAGE, _make) / "usr" / "bin" / "promtool"


def _make(home: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise PrometheusMissing("promtool is not here: install Prometheus (https://prometheus.io/download).")
    with TemporaryDirectory(prefix="lakesink-prometheus-") as folder:
        _run(["apt-get", "download", "-q", PACKAGE], folder)
        [package] = Path(folder).glob("*.deb")
        _run(["dpkg-deb", "-x", str(package), str(home)], folder)


def _run(call: list[str], folder: str) -> None:
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    if done.returncode:
        raise PrometheusMissing(f"{call[0]} failed: {done.stderr[-500:]} After apt-get update it may go on.")
