"""Programs that stand for a Java: they print what a real one prints. Packages that are metadata alone."""

from pathlib import Path

MODULES = ("java.base", "jdk.incubator.vector")


def java_at(home: Path, version: str, modules: tuple[str, ...] = MODULES) -> Path:
    """A Java home whose program tells this version and these modules."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    listed = "\\n".join(f"{module}@{version}" for module in modules)
    program.write_text(
        f'#!/bin/sh\ncase "$1" in\n--list-modules) printf "{listed}\\n" ;;\n'
        f"*) echo 'openjdk version \"{version}\" 2025-04-15' >&2 ;;\nesac\n"
    )
    program.chmod(0o755)
    return home


def distribution(site: Path, name: str, version: str, *requires: str) -> None:
    """An installed package, for those who read its version and requirements."""
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
