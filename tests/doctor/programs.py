"""Programs that stand for a Java: they print what a real one prints."""

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
