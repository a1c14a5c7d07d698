"""The errors of locating. They name columns and files, never the values of a key."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakesink.rows.task_errors import DESCRIBED
from lakesink_protocol.errors import WriteError
from lakesink_protocol.redact import describe, redact
from lakesink_protocol.storage_errors import storage_trouble


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
