"""What a command is asked about: a table, or a directory of a sink of files."""

from pathlib import Path

from lakesink.sinks.directory.layout import FOLDER
from lakesink_tools.cli.output import invalid


def is_directory(target: str, catalog: str | None) -> bool:
    """A name of a table has no slash; a folder's that has none is known by what is in it. It is in no catalog."""
    found = "/" in target or (Path(target) / FOLDER).is_dir()
    if found and catalog is not None:
        raise invalid("--catalog names the catalog of a table, and this is a directory.", "Leave --catalog out.")
    return found
