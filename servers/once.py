"""What is installed once, into a folder that names its version, though several processes may ask at once."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp


def made_once(home: Path, make: Callable[[Path], None]) -> Path:
    """A folder, made if it is not there yet: whole, or not at all.

    Args:
        home: The folder; its parent is made too.
        make: Fills an empty folder, which then gets its name.
    """
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(mkdtemp(prefix=".making-", dir=home.parent))
        try:
            make(staged)
            with suppress(OSError):  # another process was first
                staged.rename(home)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    return home
