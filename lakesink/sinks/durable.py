"""Folders of a local file system whose entries outlive a power failure, as what they name does."""

import os
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing; the entry of each is durable."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder: a file that was created or renamed in it is still there after a power failure."""
    sync_file(folder)


def sync_file(path: Path) -> None:
    """Flush what was written into a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
