"""Translates other libraries' catalog failures into `CatalogError`, without secrets."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from gzip import BadGzipFile
from typing import Any, TypeVar

from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.exceptions import ValidationError as MetadataError
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, SQLAlchemyError
from strictyaml import YAMLError

from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import CatalogError, LakesinkError
from lakesink_protocol.redact import describe, safe_cause
from lakesink_protocol.storage_errors import storage_trouble

METADATA_UNREADABLE = (MetadataError, UnicodeDecodeError, EOFError, BadGzipFile, zlib.error)
"""PyIceberg's exceptions for a metadata file that is incomplete, or has an unknown version."""

_FOR_THE_CALLER = (NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError, NamespaceAlreadyExistsError)
T = TypeVar("T")


def translated(where: str, known: Mapping[str, Any], call: Callable[[], T]) -> T:
    """Make a call, and translate exceptions of PyIceberg, SQLAlchemy, requests and the system into `CatalogError`.

    PyIceberg's exceptions for "not there" and "already there" pass, because the caller handles them. This is a
    function and not a context manager. Otherwise the new exception would keep the original one, with its secrets.

    Args:
        where: The catalog's name or place, for the message.
        known: The catalog's properties, whose secrets must not show.
        call: The call.
    """
    try:
        return call()
    except (LakesinkError, *_FOR_THE_CALLER):
        raise
    except Exception as error:  # noqa: BLE001 - every exception can contain a URI with a secret
        failure = error
    raise catalog_error(failure, where, known) from safe_cause(failure, known)


def asking(catalog: Catalog, call: Callable[[], T]) -> T:
    """Make a call of an open catalog, see `translated`."""
    return translated(f"The catalog {catalog.name!r}", catalog.properties, call)


def translate_storage_errors(known: Mapping[str, Any], call: Callable[[], T]) -> T:
    """Make a call that uses the table's storage for a batch, and translate its OSError without secrets of `known`."""
    try:
        return call()
    except OSError as error:
        failure = error
    raise catalog_error(failure, "The table", known, data=DataState.NOT_IN) from safe_cause(failure, known)


def catalog_error(
    error: Exception, where: str, known: Mapping[str, Any], *, data: DataState = DataState.UNCHANGED
) -> CatalogError:
    """The error to raise for an exception of another library."""
    needed = _PACKAGES.get(getattr(error, "name", None) or "", _PACKAGES[""])
    return CatalogError.of(_text(error), data=data, what=where, where="", error=describe(error, known), needed=needed)


def http_status(error: Exception) -> int | None:
    """The status of the answer for which PyIceberg's REST client raised this error; None for any other error."""
    if not isinstance(error, (RESTError, NotImplementedError)):
        return None
    return getattr(getattr(error.__cause__, "response", None), "status_code", None)


_REFUSALS = ("password authentication failed", "no password supplied", "permission denied", "access denied", "pg_hba")


_PACKAGES = {
    "thrift": '"pyiceberg[hive]"',
    "boto3": '"pyiceberg[glue]"',
    "psycopg2": '"psycopg2-binary"',
    "": "psycopg2-binary, pyiceberg[hive] or pyiceberg[glue]; for object stores s3fs, gcsfs or adlfs",
}
"""What brings a module that a catalog needs."""


def _text(error: Exception) -> str:
    """The name of its text in the catalogue of errors."""
    if is_hive_4(error):
        return "CATALOG_UNSUPPORTED.hive_4"
    if isinstance(error, DatabaseError) and any(words in str(error).lower() for words in _REFUSALS):
        return "CATALOG_REJECTED"
    code = storage_trouble(error) if isinstance(error, OSError) else None
    return code or next((name for types, name in _by_type() if isinstance(error, types)), "CATALOG_FAILED")


def is_hive_4(error: Exception) -> bool:
    """Hive 4 has removed the calls of PyIceberg 0.12. Thrift may not be installed, so its class is known by name."""
    kind = type(error)
    of_thrift = kind.__name__ == "TApplicationException" and kind.__module__.partition(".")[0] == "thrift"
    return of_thrift and "Invalid method name: 'get_table'" in str(error)


def _by_type() -> Iterator[tuple[tuple[type[BaseException], ...], str]]:
    """The first type counts."""
    from requests import exceptions as http  # noqa: PLC0415 - SQL catalogs need none of it until something fails

    yield (ModuleNotFoundError, NotInstalledError), "CATALOG_NOT_INSTALLED"
    yield METADATA_UNREADABLE, "TABLE_METADATA_UNREADABLE"
    yield (UnauthorizedError, ForbiddenError, AuthorizationExpiredError, OAuthError), "CATALOG_REJECTED"
    yield (http.MissingSchema, http.InvalidSchema, http.InvalidURL), "CATALOG_MISCONFIGURED"
    yield (ArgumentError, NoSuchModuleError, YAMLError), "CATALOG_MISCONFIGURED"
    yield (RESTError, ValidationError), "CATALOG_UNREACHABLE.answers"
    yield (http.RequestException, SQLAlchemyError, ConnectionError, TimeoutError), "CATALOG_UNREACHABLE"
    yield (OSError,), "WAREHOUSE_UNWRITABLE"
    yield (ValueError, TypeError, KeyError), "CATALOG_MISCONFIGURED"
