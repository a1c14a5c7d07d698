"""The errors of locating. They name columns and files, never the values of a key."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakesink.keys.change_order import WITHOUT_ORDER
from lakesink.keys.key_columns import KeyColumns
from lakesink.rows.task_errors import DESCRIBED, shown
from lakesink_protocol.errors import WriteError
from lakesink_protocol.redact import describe, redact
from lakesink_protocol.storage_errors import storage_trouble


def sequence_tied(columns: KeyColumns, keys: int, places: str) -> WriteError:
    """Two changes of a key have the same sequence, and nothing else says which one is newer."""
    sequences = ", ".join(column.name for column in columns.sequences)
    return WriteError(
        "SEQUENCE_TIED",
        f"Changes of {keys} key{_s(keys)} ({shown(columns.named)}) have the same sequence ({shown(sequences)})."
        f"{places}",
        action="Add a column to sequence_by that orders such changes, or read the changes from Kafka with the key as"
        " the key of the messages.",
    )


def key_twice(columns: KeyColumns, keys: int, places: str) -> WriteError:
    """A batch has several changes of a key, and nothing says which one is newer."""
    return WriteError(
        "KEY_TWICE",
        f"The batch has more than one change of {keys} key{_s(keys)} ({shown(columns.named)}), without an order."
        f"{places}",
        action=WITHOUT_ORDER,
    )


def sequence_of_partitions(column: str, *, are_several: bool) -> WriteError:
    """Positions in Kafka order changes, and there are several partitions, or nothing says that there is only one."""
    why = (
        "the changes come from more than one partition of Kafka"
        if are_several
        else "only the offsets of a stream that reads Kafka itself show that there is one partition"
    )
    return WriteError(
        "SEQUENCE_OF_PARTITIONS",
        f"The option sequence_by begins with {column}, and {why}: a key that moved to another one would have no order.",
        action=(
            "Leave sequence_by out: later offsets and later batches are newer, as Kafka keeps the order of each key.",
            (
                "Name a column that the source increases with each change of a row, such as a version, and a position"
                " after it: sequence_by=['version', '_kafka_offset']."
            ),
        ),
    )


def keys_file_damaged(location: str, why: str) -> WriteError:
    """A keys file of the batch is not the file that its task wrote."""
    return WriteError(
        "KEYS_FILE_DAMAGED",
        f"A keys file of the batch cannot be used: {why[:DESCRIBED]}",
        action=f"Start the query again: the batch is written again. The file is {redact(location)!r}.",
    )


def too_many_changes(limit_bytes: int) -> WriteError:
    """The keys of a batch do not fit into the memory that locating may use."""
    return WriteError(
        "TOO_MANY_CHANGES",
        f"The keys of the batch need more than {limit_bytes // 2**20} MiB of the driver's memory.",
        action="Read less per batch, for example with maxOffsetsPerTrigger or maxFilesPerTrigger.",
    )


def file_unreadable(location: str, why: str) -> WriteError:
    """A live data file or delete file of the table cannot be read."""
    return WriteError(
        "TABLE_FILE_UNREADABLE",
        f"A file of the table cannot be searched for keys: {why[:DESCRIBED]}",
        action="Check that the file exists and is Parquet: mode='upsert' and mode='changes' read no other format."
        f" The file is {redact(location)!r}.",
    )


@contextmanager
def reading(location: str, refused: Callable[[str, str], WriteError]) -> Iterator[None]:
    """Convert errors of the operating system or object store inside the block to a `WriteError`."""
    try:
        yield
    except OSError as error:
        trouble, why = storage_trouble(error), describe(error)
        if trouble is None:
            raise refused(location, why) from error
        where = f"{trouble.action} The file is {redact(location)!r}."
        raise WriteError(trouble.code, f"A file {trouble.what}: {why[:DESCRIBED]}", action=where) from error


def duckdb_missing() -> WriteError:
    """DuckDB, which searches data files, is not installed."""
    return WriteError(
        "UPSERT_LIBRARY_MISSING",
        "The modes 'upsert' and 'changes' need duckdb, which is not installed.",
        action='Run `pip install "lakesink[upsert]"` in the Python of driver and executors.',
    )


def cache_unsafe(folder: str) -> WriteError:
    """The folder for cached key columns belongs to another user."""
    return WriteError(
        "CACHE_UNSAFE",
        "The local folder for cached key columns belongs to another user.",
        action=f"Remove it, or set TMPDIR to a folder of the user that runs the query. The folder is {folder!r}.",
    )


def local_disk_failed(folder: str, why: str) -> WriteError:
    """A local folder, for copies of key columns or for what does not fit into memory, cannot be used."""
    return WriteError(
        "LOCAL_DISK_FAILED",
        f"The local folder in which keys are searched cannot be used: {why[:DESCRIBED]}",
        action="Free or repair the disk, or set TMPDIR to another folder; then start the query again. The folder is"
        f" {folder!r}, and nothing in it is needed later.",
    )


def _s(count: int) -> str:
    return "" if count == 1 else "s"
