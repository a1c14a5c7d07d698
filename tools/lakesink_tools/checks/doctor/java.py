"""Finds the Java that Spark would start, as Spark's own launcher does: `JAVA_HOME`, else the path."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lakesink.java import PACKAGE, use
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing

OLDEST_JAVA = 17
NEWEST_KNOWN_JAVA = 25
INSTALL_JAVA = (
    "Install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless), set JAVA_HOME to where it is, "
    'or take the one of the Python index: pip install "lakesink[java]"'
)
_HOME = "JAVA_HOME"
_VECTOR_MODULE = "jdk.incubator.vector"
_LONGEST_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Java:
    """One Java."""

    command: str  # path of the program
    version: str  # as Java reports it; empty if it does not run

    @property
    def major(self) -> int:
        """Major version; 0 if unknown."""
        found = re.match(r"(?:1\.)?(\d+)", self.version)
        return int(found[1]) if found else 0


def java_of_spark() -> Java | None:
    """The Java that Spark would use; None if there is none."""
    home = os.environ.get(_HOME)
    return _java_at(str(Path(home, "bin", "java")) if home else shutil.which("java"))


def check_java() -> Finding:
    """Check Spark's Java. If there is none, take the one of the Python index for the rest of this process."""
    home = use() if find_spec(PACKAGE) else None
    if home is not None:
        [version, *_] = _said(str(home / "bin" / "java"), "-version").splitlines() or ["it does not run"]
        found = f"No Java was found. doctor goes on with the one of the package {PACKAGE}: {version}"
        fix = "Call lakesink.java.use() before the first Spark session of your program, or install a Java."
        return Finding(Part.MACHINE, "java", Standing.WARNING, found, fix)
    java = java_of_spark()
    if java is None:
        return _failed(f"No Java was found: {_HOME} is not set, and there is no java on the path.")
    return _of_the_machine(java)


def _of_the_machine(java: Java) -> Finding:
    """Check that a Java runs, is new enough, and has the module that Spark's launcher asks for."""
    if not java.version:
        return _failed(f"{java.command} does not run.")
    place = f"Java {java.version} at {java.command}" + (f" ({_HOME})" if os.environ.get(_HOME) else " (path)")
    if java.major < OLDEST_JAVA:
        return _failed(f"{place}: Spark needs {OLDEST_JAVA} or newer.")
    if not _has_module(java, _VECTOR_MODULE):
        return _failed(f"{place} lacks the module {_VECTOR_MODULE}, which Spark needs at its start.")
    if java.major > NEWEST_KNOWN_JAVA:
        found = f"{place} is newer than the versions on which Spark is known to run."
        return Finding(Part.MACHINE, "java", Standing.WARNING, found, "If Spark does not start, take Java 17 or 21.")
    return Finding(Part.MACHINE, "java", Standing.OK, place)


def _failed(found: str) -> Finding:
    return Finding(Part.MACHINE, "java", Standing.FAILED, found, _mend_home() or INSTALL_JAVA)


def _mend_home() -> str:
    """How to repair a wrong `JAVA_HOME` if a suitable Java is nearby; else empty."""
    home = os.environ.get(_HOME)
    if not home:
        return ""
    above = next((folder for folder in Path(home).parents[:2] if _fits(_java_at(str(folder / "bin" / "java")))), None)
    if above is not None:
        return f"export {_HOME}={above}"
    on_path = _java_at(shutil.which("java"))
    if on_path is not None and _fits(on_path):
        return f"unset {_HOME}  # {on_path.command} is Java {on_path.version}"
    return ""


def _fits(java: Java | None) -> bool:
    return java is not None and java.major >= OLDEST_JAVA and _has_module(java, _VECTOR_MODULE)


def _java_at(command: str | None) -> Java | None:
    if command is None:
        return None
    found = re.search(r'version "([^"\s]{1,40})"', _said(command, "-version"))
    return Java(command, found[1] if found else "")


def _has_module(java: Java, module: str) -> bool:
    return re.search(rf"^{re.escape(module)}(@|$)", _said(java.command, "--list-modules"), re.MULTILINE) is not None


def _said(command: str, argument: str) -> str:
    """What Java prints; empty if it fails."""
    try:
        answer = subprocess.run(  # noqa: S603 - Spark runs the same
            [command, argument], capture_output=True, text=True, errors="replace", check=True, timeout=_LONGEST_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout + answer.stderr
