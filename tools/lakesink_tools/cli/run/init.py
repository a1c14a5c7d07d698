"""The command ``init``: a commented configuration and a first program. It never overwrites a file."""

import os
import shlex
from importlib.resources import files
from pathlib import Path

from lakesink_protocol.errors import SettingsError
from lakesink_protocol.redact import describe
from lakesink_tools.cli.output import Report

_FILES = {".pyiceberg.yaml": "pyiceberg.yaml", "first_stream.py": "first_stream.py"}
"""Names in the new folder, and in the package."""


def init(folder: Path) -> Report:
    """Exit code 2: a file is there already, or the folder cannot be written."""
    try:
        written = _write(folder)
    except FileExistsError as error:
        raise SettingsError.of(
            "FILE_EXISTS", data="No file was overwritten.", path=str(Path(error.filename))[:120]
        ) from None
    except OSError as error:
        raise SettingsError.of(
            "DIRECTORY_UNWRITABLE.init", folder=str(folder)[:80], error=describe(error)[:80]
        ) from None
    program = shlex.quote(str(folder / "first_stream.py"))
    return Report(
        document={"folder": str(folder), "written": [str(path) for path in written]},
        title=f"Written: {', '.join(str(path) for path in written)}",
        hints=[
            "The program needs PySpark and Java 17; lakesink doctor says what is missing.",
            f"Next: python {program}, then in {shlex.quote(str(folder))}: lakesink status demo.events",
        ],
    )


def _write(folder: Path) -> list[Path]:
    """Look before anything is written; a file that appears meanwhile is kept too."""
    for name in _FILES:
        if os.path.lexists(folder / name):  # also a symbolic link to nothing
            raise SettingsError.of("FILE_EXISTS", data="Nothing was written.", path=str(folder / name)[:120])
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in _FILES.items():
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(files("lakesink_tools.demo.start").joinpath(source).read_text("utf-8"))
    return [folder / name for name in _FILES]
