"""The errors of locating, and its folders on the local disk. No error names the values of a key."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lakesink.rows.task_errors import DESCRIBED
from lakesink_protocol.errors import WriteError
from lakesink_protocol.redact import describe, redact
from lakesink_protocol.storage_errors import storage_trouble

_PRIVATE = 0o700
_OF_WRITING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})


def sequence_of_partitions(column: str, *, are_several: bool) -> WriteError:
    """Positions in Kafka order changes, and there are several partitions, or nothing says that there is only one."""
    why = (
        "the changes come from more than one partition of Kafka"
        if are_several
        else "only the offsets of a stream that reads Kafka itself show that there is one partition"
    )
    return WriteError.of("SEQUENCE_OF_PARTITIONS", column=column, why=why)


def keys_file_damaged(location: str, why: str) -> WriteError:
    """A keys file of the batch is not the file that its task wrote."""
    return WriteError.of("KEYS_FILE_DAMAGED", why=why[:DESCRIBED], location=redact(location))


def too_many_changes(limit_bytes: int) -> WriteError:
    """The keys of a batch do not fit into the memory that locating may use."""
    return WriteError.of("TOO_MANY_CHANGES", mebibytes=limit_bytes // 2**20)


def file_unreadable(location: str, why: str) -> WriteError:
    """A live data file or delete file of the table cannot be read."""
    return WriteError.of("TABLE_FILE_UNREADABLE", why=why[:DESCRIBED], location=redact(location))


@contextmanager
def reading(location: str, refused: Callable[[str, str], WriteError]) -> Iterator[None]:
    """Convert errors of the operating system or object store inside the block to a `WriteError`."""
    try:
        yield
    except OSError as error:
        why, code = describe(error), storage_trouble(error)
        if code is None:
            raise refused(location, why) from error
        where = f"The file is {redact(location)!r}."
        raise WriteError.of(code, what="A file", error=why[:DESCRIBED], where=where) from error


def private_folder(folder: str) -> Path:
    """Make a folder for copies and spilled rows, which only the user of this process may read.

    Raises WriteError if it is there and belongs to another user, or an OSError.
    """
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
