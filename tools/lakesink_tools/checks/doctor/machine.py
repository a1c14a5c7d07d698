"""Compares this Python and its packages with the ranges that lakesink declares. Imports none of them itself."""

import importlib
import operator
import platform
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata

from lakesink.rows.libraries import version_numbers
from lakesink_protocol.redact import describe
from lakesink_tools.checks.caught import caught
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing
from lakesink_tools.engines.spark_runtime import WITHOUT_RUNTIME, lacks_runtime

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?(?P<range>[^;()]*)\)?\s*(?P<marker>;.*)?")
_BOUND = re.compile(r"\s*(?P<sign>>=|<|==)\s*(?P<version>\d+(?:\.\d+)*)\s*")
_SIGNS = {">=": operator.ge, "<": operator.lt, "==": operator.eq}
_PYSPARK = "pyspark"
"""Imported by a check of its own."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package that lakesink needs; `range` in pip's notation. An optional one may be missing."""

    name: str
    range: str
    optional: bool = False

    def allows(self, version: str) -> bool:
        """True if a version is in the range; a bound in an unknown form excludes nothing."""
        bounds = [bound for text in self.range.split(",") if (bound := _BOUND.fullmatch(text))]
        found = version_numbers(version)
        return all(_SIGNS[bound["sign"]](found, version_numbers(bound["version"])) for bound in bounds)


def requirements_in(lines: Sequence[str]) -> list[Requirement]:
    """The requirements in a distribution's metadata, of its extras only PySpark: clusters bring their own."""
    found = ((match, match["marker"] or "") for line in lines if (match := _REQUIREMENT.fullmatch(line)))
    return [
        Requirement(match["name"], match["range"].replace(" ", ""), optional="extra" in marker)
        for match, marker in found
        if "extra" not in marker or match["name"] == _PYSPARK
    ]


def check_python() -> Finding:
    """The Python of this process; a driver that is started in the same way uses it."""
    found = f"Python {platform.python_version()} at {sys.executable}"
    return Finding(Part.MACHINE, "python", Standing.OK, found)


def check_packages() -> list[Finding]:
    """Check that every required package is installed, in range, and importable."""
    try:
        own, needed = metadata.version("lakesink"), requirements_in(metadata.requires("lakesink") or [])
    except metadata.PackageNotFoundError:
        found = "lakesink is imported from a folder and is not installed, so its packages cannot be compared."
        fix = f"{_pip()} lakesink"
        return [Finding(Part.MACHINE, "packages", Standing.WARNING, found, fix)]
    versions = {"lakesink": own}
    troubles = [trouble for requirement in needed for trouble in _troubles(requirement, versions)]
    if troubles:
        return troubles
    found = ", ".join(f"{name} {version}" for name, version in versions.items())
    findings = [Finding(Part.MACHINE, "packages", Standing.OK, found, details=versions)]
    if lacking := lacks_runtime(versions.get(_PYSPARK, "")):
        findings.append(Finding(Part.MACHINE, "iceberg runtime", Standing.WARNING, lacking, WITHOUT_RUNTIME))
    return findings


def not_looked_at() -> list[Finding]:
    """Findings for checks that need the missing packages."""
    why = "not checked: repair the packages first"
    return [Finding(part, "all", Standing.SKIPPED, why) for part in (Part.SPARK, Part.CATALOG)]


def _troubles(requirement: Requirement, versions: dict[str, str]) -> Iterator[Finding]:
    name = requirement.name
    try:
        versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        if not requirement.optional:
            yield _package_failed(requirement, f"{name} is not installed.")
        return
    if not requirement.allows(versions[name]):
        found = f"{name} {versions[name]} is installed; lakesink needs {requirement.range}."
        yield _package_failed(requirement, found)
    if name != _PYSPARK:
        imported = caught(lambda: importlib.import_module(name.replace("-", "_")))
        if isinstance(imported, Exception):
            found = f"{name} {versions[name]} cannot be imported: {describe(imported)}"
            yield _package_failed(requirement, found)


def _package_failed(requirement: Requirement, found: str) -> Finding:
    fix = f"{_pip()} {shlex.quote(requirement.name + requirement.range)}"
    return Finding(Part.MACHINE, "packages", Standing.FAILED, found, fix)


def _pip() -> str:
    return f"{shlex.quote(sys.executable)} -m pip install"
