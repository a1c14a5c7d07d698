"""Which Java runs a server that needs a newer one than Spark does."""

import os
import re
import shutil
from pathlib import Path

from servers.missing import Missing

_VERSION = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)


class JavaMissing(Missing):
    """There is no such Java on this machine, in one sentence with what to do."""


def java_home(major: int) -> Path:
    """Home of the Java of a major version: ``JAVA_<major>_HOME``, else the default Java or one in a folder beside it.

    Raises:
        JavaMissing: There is none.
    """
    named = os.environ.get(f"JAVA_{major}_HOME")
    default = _default_home()
    beside = sorted(default.parent.iterdir()) if default is not None else []
    for home in [Path(named)] if named else beside:
        if _major(home) == major:
            return home.resolve()
    raise JavaMissing(
        f"Java {major} was not found {f'in {named}' if named else 'beside the default Java'}:"
        f" install it there (a Temurin {major} JDK), or set JAVA_{major}_HOME to where it is."
    )


def _default_home() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java")
    if home:
        return Path(home).resolve()
    return Path(program).resolve().parents[1] if program else None


def _major(home: Path) -> int | None:
    release = home / "release"
    found = _VERSION.search(release.read_text(errors="replace")) if release.is_file() else None
    return int(found[1]) if found else None
