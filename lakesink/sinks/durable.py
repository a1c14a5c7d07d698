"""Local files and folders that survive a power failure."""

import os
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, and flush each parent folder."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk: files created or renamed in it then survive a power failure."""
    sync_file(folder)


def sync_file(path: Path) -> None:
    """Flush a file to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
