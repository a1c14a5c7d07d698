"""What PySpark repeats in a worker process before and after each task, and how a process is spared it.

A task is what PySpark sends to a process that it uses again: rows to write, a batch of ``format("lakesink")`` to plan,
or one to commit. Executors import this module, so it needs the standard library only.
"""

import gc
import zipimport
from itertools import count
from pathlib import Path
from typing import Any


def make_reuse_cheap() -> None:
    """To be called at the beginning of each task of this process."""
    read_archives_once()
    freeze_imports()


def read_archives_once() -> None:
    """Let this worker process re-read a zip archive's directory only when the archive has changed.

    Before every task PySpark invalidates Python's import caches. Python 3.11 and 3.12 then re-read the directory of
    every archive on their path, which takes most of a tiny task's time. Python 3.13 waits until the next import
    (gh-103200), so there this does nothing.
    """
    importer: Any = zipimport.zipimporter
    if hasattr(importer, "_get_files") or hasattr(importer, "_lakesink_reads_once"):
        return
    read_again = importer.invalidate_caches
    known: dict[tuple[str, str], tuple[int, ...]] = {}

    def invalidate_caches(self: Any) -> None:
        key, state = (self.archive, self.prefix), _state_of(self.archive)
        if state is not None and known.get(key) == state:
            return
        known.pop(key, None)
        read_again(self)  # an archive that cannot be read has no files then, and says nothing
        if state is not None and self._files and _state_of(self.archive) == state:
            known[key] = state

    importer.invalidate_caches = invalidate_caches
    importer._lakesink_reads_once = True  # marks this process as patched


def freeze_imports() -> None:
    """Before this process's second task, exclude everything imported so far from garbage collections.

    PySpark's workers run a full collection after every task: 60 ms where PySpark, PyArrow and a decoder are imported,
    100 ms and more where PyIceberg is. By the second task all of these are imported, and a collection has just removed
    the garbage of the first.
    """
    if next(_TASKS_BEFORE) == 1:
        gc.freeze()


_TASKS_BEFORE = count()


def _state_of(archive: str) -> tuple[int, ...] | None:
    try:
        status = Path(archive).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size
