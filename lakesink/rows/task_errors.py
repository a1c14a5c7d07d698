"""The errors of a task: a short first line, redacted text of other programs, and advice for casts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lakesink_catalog.spark_types import sql_name
from lakesink_protocol.errors import WriteError
from lakesink_protocol.redact import describe, redact
from lakesink_protocol.storage_errors import StorageTrouble, storage_trouble

SHOWN = 36
"""Most characters of a name or type in a first line: the line must stay short for every table."""
DESCRIBED = 140
LONGEST_VALUE = 60
"""Most characters of a value in messages, if the option show_values is set."""
_UNWRITTEN = StorageTrouble(
    "STORAGE_WRITE",
    "could not be written",
    "Check free space, permissions, and that the executors can reach the storage. Then start the query again.",
)


def shown(text: str) -> str:
    """A name or type for a first line, shortened in the middle if it is long."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2 - 1]}...{text[2 - SHOWN // 2 :]}"


def schema_mismatch(what: str, *, action: str) -> WriteError:
    """The columns of rows and table do not match."""
    return WriteError("SCHEMA_MISMATCH", what, action=action)


def null_in_required(column: str, count: int) -> WriteError:
    """A required column contains NULLs."""
    return WriteError(
        "NULL_IN_REQUIRED",
        f"Required column {shown(column)!r} contains at least {count} NULL{'s' if count > 1 else ''}.",
        action="Filter or fill the NULLs in the query, or make the column optional in the table.",
    )


def how_to_cast(path: Sequence[str], incoming: str, target: str) -> str:
    """The advice for the query: a CAST in Spark SQL where possible. Types are in Spark's spelling."""
    column = ".".join(path)
    if len(path) > 1 or "<" in incoming or "<" in target:
        return f"Convert {column!r} from {incoming} to {target} in the query."
    plain = target.partition(" ")[0]
    if plain == incoming:
        return f"Correct {column!r} in the query, or filter the rows."
    return f"Cast it in the query, for example CAST({sql_name(column)} AS {plain})."


def decoder_missing(library: str) -> WriteError:
    """A library for decoding is not installed."""
    return WriteError(
        "DECODER_MISSING",
        f"Decoding needs {library}, which is not installed.",
        action=f"Run `pip install {library}` for the Python of driver and executors. Then start the query again.",
    )


def library_too_old(library: str, version: str, oldest: str) -> WriteError:
    """The installed version of a library is too old."""
    return WriteError(
        "LIBRARY_TOO_OLD",
        f"{library} {version} is installed; lakesink needs {oldest} or newer: older ones treat some values wrongly.",
        action=f"Run `pip install '{library}>={oldest}'` for the Python of driver and executors. "
        "Then start the query again.",
    )


def registry_unreachable(registry: str, why: str) -> WriteError:
    """Writers' schemas cannot be read; the documents may be valid."""
    return WriteError(
        "REGISTRY_UNREACHABLE",
        f"The schema registry cannot be read: {why[:DESCRIBED]}",
        action=f"Check that driver and executors can reach {registry!r}. Then start the query again: it skips nothing.",
    )


def registry_refused(registry: str, why: str) -> WriteError:
    """The registry's answer or file cannot be used as writers' schemas."""
    return WriteError(
        "REGISTRY_REFUSED",
        f"The schema registry is unusable: {why[:DESCRIBED]}",
        action=f"Correct the option schema_registry ({registry!r}); see `lakesink explain LAKESINK_REGISTRY_REFUSED`.",
    )


def unsupported_storage(location: str, why: str, *, action: str) -> WriteError:
    """Executors cannot write to the data location."""
    return WriteError(
        "STORAGE_UNSUPPORTED",
        f"Data files cannot be written: {why}",
        data="Nothing of this batch was written or committed.",
        action=f"{action} The location is {redact(location)!r}.",
    )


def footer_disagrees(location: str, counted: int, footer: int) -> WriteError:
    """A closed file has another number of rows than were written."""
    return WriteError(
        "FOOTER_DISAGREES",
        f"The footer of a data file counts {footer} rows, but {counted} were written.",
        action="Start the query again. If the error repeats, report it with the versions of lakesink and pyarrow. "
        f"The file is {redact(location)!r}.",
    )


def rows_differ(received: int, written: int) -> WriteError:
    """A task's files have another number of rows than it received."""
    return WriteError(
        "ROWS_DIFFER",
        f"A task received {received} rows, but its files contain {written}.",
        action="This is a defect of lakesink: report it with the table's schema and partition spec.",
    )


@contextmanager
def storage_failures(location: str) -> Iterator[None]:
    """Convert errors of the operating system or object store inside the block to a `WriteError`."""
    try:
        yield
    except OSError as error:
        trouble = storage_trouble(error) or _UNWRITTEN
        raise WriteError(
            trouble.code,
            f"A data file {trouble.what}: {describe(error)[:DESCRIBED]}",
            action=f"{trouble.action} The file is {redact(location)!r}.",
        ) from error
