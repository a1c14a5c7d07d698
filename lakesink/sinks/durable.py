"""Local files and folders that survive a power failure."""

import os
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, and flush each parent folder."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def sync(path: Path) -> None:
    """Flush a file to disk, or a folder's entries: files created or renamed in it then survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
