"""Translates other libraries' catalog failures into `CatalogError`, without secrets."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from gzip import BadGzipFile
from typing import Any, TypeVar

from pydantic import ValidationError
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
    code, happened, action = _words(error)
    return CatalogError(code, f"{where} {happened} ({describe(error, known)}).", data=data, action=action)


def http_status(error: Exception) -> int | None:
    """The status of the answer for which PyIceberg's REST client raised this error; None for any other error."""
    if not isinstance(error, (RESTError, NotImplementedError)):
        return None
    return getattr(getattr(error.__cause__, "response", None), "status_code", None)


_Words = tuple[str, str, str]

_NOT_INSTALLED: _Words = (
    "CATALOG_NOT_INSTALLED",
    "needs a Python package that is not installed",
    "Install it: psycopg2-binary, pyiceberg[hive] or pyiceberg[glue]; for object stores s3fs, gcsfs or adlfs.",
)
_REJECTED: _Words = (
    "CATALOG_REJECTED",
    "rejected the credentials",
    "Check user, password, token or credential in the catalog's configuration, and their permissions.",
)
_MISCONFIGURED: _Words = (
    "CATALOG_MISCONFIGURED",
    "is not configured correctly",
    "Correct the catalog's uri and properties in PyIceberg's configuration (~/.pyiceberg.yaml, PYICEBERG_CATALOG__*).",
)
_UNWRITABLE: _Words = (
    "WAREHOUSE_UNWRITABLE",
    "cannot read or write its folder or bucket",
    "Check that the warehouse and the named file exist, that this user may write there, and free space.",
)
_METADATA: _Words = (
    "TABLE_METADATA_UNREADABLE",
    "names a metadata file of the table that cannot be read",
    "Restore that file, or make the catalog name an earlier metadata file of the same folder.",
)
_ANSWERED: _Words = (
    "CATALOG_UNREACHABLE",
    "answered with an error",
    "Check that the uri names an Iceberg catalog and that the service is healthy, then start again.",
)
_UNREACHABLE: _Words = (
    "CATALOG_UNREACHABLE",
    "cannot be reached",
    "Check that the service runs and that the uri names it, then start again.",
)
_HIVE_4: _Words = (
    "CATALOG_UNSUPPORTED",
    "is a Hive 4 metastore, which PyIceberg cannot ask for a table before its version 0.13",
    "Hive 4 needs PyIceberg 0.13: install it when it is out, or use a Hive 3 metastore or another catalog.",
)
_FAILED: _Words = (
    "CATALOG_FAILED",
    "failed",
    "Check the catalog's configuration; if it is right, report this with the full trace.",
)

_REFUSALS = ("password authentication failed", "no password supplied", "permission denied", "access denied", "pg_hba")


_EXTRAS = {"thrift": "pyiceberg[hive]", "boto3": "pyiceberg[glue]", "psycopg2": "psycopg2-binary"}
"""What brings a package that a catalog needs."""


def _words(error: Exception) -> _Words:
    if is_hive_4(error):
        return _HIVE_4
    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS:
        return (*_NOT_INSTALLED[:2], f'Install it: pip install "{_EXTRAS[error.name]}".')
    if isinstance(error, DatabaseError) and any(words in str(error).lower() for words in _REFUSALS):
        return _REJECTED
    trouble = storage_trouble(error) if isinstance(error, OSError) else None
    if trouble is not None:
        return trouble.code, trouble.what, trouble.action
    return next((words for types, words in _by_type() if isinstance(error, types)), _FAILED)


def is_hive_4(error: Exception) -> bool:
    """Hive 4 has removed the calls of PyIceberg 0.12. Thrift may not be installed, so its class is known by name."""
    kind = type(error)
    of_thrift = kind.__name__ == "TApplicationException" and kind.__module__.partition(".")[0] == "thrift"
    return of_thrift and "Invalid method name: 'get_table'" in str(error)


def _by_type() -> Iterator[tuple[tuple[type[BaseException], ...], _Words]]:
    """The first type counts."""
    from requests import exceptions as http  # noqa: PLC0415 - SQL catalogs need none of it until something fails

    yield (ModuleNotFoundError, NotInstalledError), _NOT_INSTALLED
    yield METADATA_UNREADABLE, _METADATA
    yield (UnauthorizedError, ForbiddenError, AuthorizationExpiredError, OAuthError), _REJECTED
    yield (http.MissingSchema, http.InvalidSchema, http.InvalidURL), _MISCONFIGURED
    yield (ArgumentError, NoSuchModuleError, YAMLError), _MISCONFIGURED
    yield (RESTError, ValidationError), _ANSWERED
    yield (http.RequestException, SQLAlchemyError, ConnectionError, TimeoutError), _UNREACHABLE
    yield (OSError,), _UNWRITABLE
    yield (ValueError, TypeError, KeyError), _MISCONFIGURED
