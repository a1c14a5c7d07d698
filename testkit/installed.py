"""lakesink as users install it: in site-packages, where PySpark finds its format by itself.

An editable install is not enough: its packages are in no folder of Python's path, where PySpark looks.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OWN_PORT = {"SPARK_TESTING": "1"}
"""With this variable PySpark's local Connect servers take a free port each, and not all of them 15002."""
PARTS = ("lakesink", "catalog", "protocol", "tools", "pyspark_lakesink", "pyproject.toml", "README.md", "LICENSE")


def installed(folder: Path) -> Path:
    """Install this lakesink, without its dependencies; returns the folder to put on Python's path."""
    sources, site = folder / "sources", folder / "site"
    for part in PARTS:  # a copy: the build leaves files beside what it builds
        source, target = ROOT / part, sources / part
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", site, sources], check=True)
    return site
