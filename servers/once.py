"""What is installed once, into a folder that names its version, though several processes may ask at once."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

LONGEST_SECONDS = 600


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


def packages_in(home: Path, requirements: Path) -> str:
    """Install Python packages into a folder beside this environment; returns what pip complained of, or nothing."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    call = [*pip, "--target", str(home), "-r", str(requirements)]
    done = subprocess.run(call, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    return done.stderr or "pip failed" if done.returncode else ""


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
