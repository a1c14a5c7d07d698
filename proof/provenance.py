"""Where and of what figures are: for every page that bears some."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("lakesink", "catalog", "protocol", "tools", "proof")
"""What the figures of the proof depend on."""


def machine() -> str:
    """This machine and what runs on it, in words."""
    python, spark, iceberg = platform.python_version(), version("pyspark"), version("pyiceberg")
    return f"{os.cpu_count()} processors, Python {python}, PySpark {spark}, PyIceberg {iceberg}"


def commit(*folders: str) -> str:
    """The commit that is checked out, with a plus if something of these folders is not as it is there."""
    changed = _git("status", "--porcelain", "-uno", *folders)
    return _git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
