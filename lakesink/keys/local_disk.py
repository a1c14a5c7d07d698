"""Folders on the local disk for what locating copies and spills: only the user of this process may read them."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakesink.rows.task_errors import DESCRIBED
from lakesink_protocol.errors import WriteError
from lakesink_protocol.redact import describe

_PRIVATE = 0o700
_OF_WRITING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})


def private_folder(folder: str) -> Path:
    """Make the folder if it is not there; raises WriteError if it belongs to another user, or an OSError."""
    root = Path(folder)
    root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise WriteError.of("CACHE_UNSAFE", folder=folder)
    root.chmod(_PRIVATE)
    return root


@contextmanager
def on_local_disk(folder: str, *, reads_others: bool = False) -> Iterator[None]:
    """Convert errors of the operating system inside the block to a `WriteError` about this folder.

    If the block also reads a file of the table, only errors that writing alone can have are about this folder.
    """
    try:
        yield
    except OSError as error:
        if reads_others and error.errno not in _OF_WRITING:
            raise
        raise WriteError.of("LOCAL_DISK_FAILED", why=describe(error)[:DESCRIBED], folder=folder) from error
