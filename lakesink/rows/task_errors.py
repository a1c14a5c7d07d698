"""The errors of a task: a short first line, redacted text of other programs, and advice for casts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lakesink_catalog.spark_types import sql_name
from lakesink_protocol.errors import WriteError
from lakesink_protocol.redact import describe, redact
from lakesink_protocol.storage_errors import storage_trouble

SHOWN = 36
"""Most characters of a name or type in a first line: the line must stay short for every table."""
DESCRIBED = 140
LONGEST_VALUE = 60
"""Most characters of a value in messages, if the option show_values is set."""


def shown(text: str) -> str:
    """A name or type for a first line, shortened in the middle if it is long."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2 - 1]}...{text[2 - SHOWN // 2 :]}"


def schema_mismatch(what: str, *, action: str) -> WriteError:
    """The columns of rows and table do not match."""
    return WriteError("SCHEMA_MISMATCH", what, action=action)


def how_to_cast(path: Sequence[str], incoming: str, target: str) -> str:
    """The advice for the query: a CAST in Spark SQL where possible. Types are in Spark's spelling."""
    column = ".".join(path)
    if len(path) > 1 or "<" in incoming or "<" in target:
        return f"Convert {column!r} from {incoming} to {target} in the query."
    plain = target.partition(" ")[0]
    if plain == incoming:
        return f"Correct {column!r} in the query, or filter the rows."
    return f"Cast it in the query, for example CAST({sql_name(column)} AS {plain})."


def registry_refused(registry: str, why: str) -> WriteError:
    """The registry's answer or file cannot be used as writers' schemas."""
    return WriteError.of("REGISTRY_REFUSED", why=why[:DESCRIBED], registry=registry)


def unsupported_storage(location: str, why: str, *, action: str) -> WriteError:
    """Executors cannot write to the data location."""
    return WriteError.of("STORAGE_UNSUPPORTED", why=why, action=action, location=redact(location))


def footer_disagrees(location: str, counted: int, footer: int) -> WriteError:
    """A closed file has another number of rows than were written."""
    return WriteError.of("FOOTER_DISAGREES", footer=footer, counted=counted, location=redact(location))


@contextmanager
def storage_failures(location: str) -> Iterator[None]:
    """Convert errors of the operating system or object store inside the block to a `WriteError`."""
    try:
        yield
    except OSError as error:
        code = storage_trouble(error) or "STORAGE_WRITE"
        why, where = describe(error)[:DESCRIBED], f"The file is {redact(location)!r}."
        raise WriteError.of(code, what="A data file", error=why, where=where) from error
