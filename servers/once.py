"""What is installed once, into a folder that names its version, though several processes may ask at once."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp


def made_once(home: Path, make: Callable[[Path], None]) -> Path:
    """A folder, made if it is not there yet: whole, or not at all.

    Args:
        home: The folder; its parent is made too.
        make: Fills an empty folder, which then gets its name.
    """
    with one_at_a_time(home.parent):
        if not home.exists():
            staged = Path(mkdtemp(prefix=".making-", dir=home.parent))
            try:
                make(staged)
                staged.rename(home)
            finally:
                shutil.rmtree(staged, ignore_errors=True)
    return home


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Other processes that make something in the folder wait; the lock of one that dies ends with it."""
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
