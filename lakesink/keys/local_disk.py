"""Folders on the local disk for what locating copies and spills: only the user of this process may read them."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakesink.keys.locate_errors import cache_unsafe, local_disk_failed
from lakesink_protocol.redact import describe

_PRIVATE = 0o700
_OF_WRITING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})


def private_folder(folder: str) -> Path:
    """Make the folder if it is not there; raises WriteError if it belongs to another user, or an OSError."""
    root = Path(folder)
    root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise cache_unsafe(folder)
    root.chmod(_PRIVATE)
    return root


@contextmanager
def on_local_disk(folder: str) -> Iterator[None]:
    """Convert errors of the operating system inside the block to a `WriteError` about this folder."""
    try:
        yield
    except OSError as error:
        raise local_disk_failed(folder, describe(error)) from error


@contextmanager
def writing_to(folder: str) -> Iterator[None]:
    """The same inside a block that also reads a file of the table, for errors that only the writing can have."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_WRITING:
            raise
        raise local_disk_failed(folder, describe(error)) from error
