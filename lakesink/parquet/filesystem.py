"""Opens the file system of data files, in the process that uses it, from properties without secrets.

Secrets do not travel with a plan; an executor finds them itself. For S3, these are the catalog's keys in PyIceberg's
configuration on that machine, else AWS's default chain (environment, profile, instance). For other stores, they are the
defaults of the fsspec implementation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pyarrow.fs import FileSystem, FSSpecHandler, LocalFileSystem, PyFileSystem, S3FileSystem, resolve_s3_region

from lakesink.rows.task_errors import unsupported_storage
from lakesink_protocol.redact import contains_secret, describe

PathOf = Callable[[str], str]
"""From a location, with scheme, to a path of the file system."""

AT_ONCE = 8
"""Files that are read or written at the same time."""
T = TypeVar("T")
R = TypeVar("R")

SHAREABLE = frozenset(
    {
        "s3.endpoint",
        "s3.region",
        "client.region",
        "s3.resolve-region",
        "s3.force-virtual-addressing",
        "s3.connect-timeout",
        "s3.request-timeout",
        "s3.anonymous",
        "s3.proxy-uri",
        "s3.role-arn",
        "client.role-arn",
        "s3.role-session-name",
        "client.role-session-name",
        "s3.signer",
        "gcs.project-id",
        "gcs.service.host",
        "gcs.requester-pays",
        "adls.account-name",
        "adls.account-host",
    }
)
_S3_SECRETS = ("access-key-id", "secret-access-key", "session-token")
_S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
_PACKAGES: Mapping[str, str] = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "wasb": "adlfs",
    "wasbs": "adlfs",
}
"""fsspec's packages by scheme."""
_FSSPEC_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "gcsfs": {"gcs.project-id": "project", "gcs.service.host": "endpoint_url", "gcs.requester-pays": "requester_pays"},
    "adlfs": {"adls.account-name": "account_name", "adls.account-host": "account_host"},
}


def shareable_properties(io_properties: Mapping[str, Any]) -> dict[str, str]:
    """Properties of a table's FileIO that may travel to executors: allow-listed, and without secrets."""
    return {
        key: str(value)
        for key, value in io_properties.items()
        if key in SHAREABLE and not contains_secret(key, str(value)) and not urlsplit(str(value)).query
    }


def open_filesystem(location: str, file_io: Mapping[str, str], catalog_name: str | None) -> tuple[FileSystem, PathOf]:
    """The file system of a location, and its function from locations to paths.

    The secrets of the catalog `catalog_name` are read from this process's PyIceberg configuration; None skips this.
    """
    scheme = scheme_of(location)
    if scheme == "file":
        return LocalFileSystem(), local_path
    if scheme in _S3_SCHEMES:
        return _s3(location, file_io, catalog_name), _without_scheme
    return open_by_fsspec(location, file_io)


@dataclass(frozen=True, slots=True)
class NewFiles:
    """Creates files, by their locations, and removes those that were never closed."""

    create: Callable[[str], Any]
    remove: Callable[[str], None]

    @classmethod
    def at(cls, location: str, file_io: Mapping[str, str], catalog_name: str | None) -> "NewFiles":
        """In the file system of a location, see `open_filesystem`."""
        filesystem, path_of = open_filesystem(location, file_io, catalog_name)

        def create(location: str) -> Any:
            path = path_of(location)
            if isinstance(filesystem, LocalFileSystem):
                filesystem.create_dir(str(PurePosixPath(path).parent), recursive=True)
            return filesystem.open_output_stream(path, compression=None)

        return cls(create, lambda location: filesystem.delete_file(path_of(location)))


def open_input(location: str, file_io: Mapping[str, str], catalog_name: str | None) -> Any:
    """Open a file for reading, in the file system of its location."""
    filesystem, path_of = open_filesystem(location, file_io, catalog_name)
    return filesystem.open_input_file(path_of(location))


def scheme_of(location: str) -> str:
    """The lower-case scheme of a location; ``file`` for a bare path."""
    scheme, colon, _ = location.partition(":")
    return scheme.lower() if colon and "/" not in scheme else "file"


def many_at_once(function: Callable[[T], R], things: Sequence[T], location: str) -> Iterator[R]:
    """The results for files of this storage, in order: several at a time, unless the storage is a local disk.

    There is nothing to wait for on a local disk, and threads would make many small files several times as slow.
    """
    if scheme_of(location) == "file":
        yield from map(function, things)
        return
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(function, things)


def local_path(location: str) -> str:
    """The path of a local location: a bare path, or ``file:`` in any spelling."""
    if scheme_of(location) != "file" or not location.lower().startswith("file:"):
        return location
    path = location[len("file:") :]
    return path if not path.startswith("//") else "/" + path[2:].partition("/")[2]


def _without_scheme(location: str) -> str:
    return location.partition("://")[2]


def _s3(location: str, file_io: Mapping[str, str], catalog_name: str | None) -> FileSystem:
    signer = file_io.get("s3.signer", "none")
    if signer.lower() not in ("", "none"):
        raise unsupported_storage(
            location,
            f"the catalog asks for remote signing (s3.signer={signer}), which executors do not support.",
            action="Configure AWS credentials on the executors, and set s3.signer to none for this catalog.",
        )
    return S3FileSystem(**_s3_arguments(location, {**file_io, **_s3_secrets(catalog_name)}))


def _s3_arguments(location: str, properties: Mapping[str, str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "endpoint_override": properties.get("s3.endpoint"),
        "access_key": properties.get("s3.access-key-id"),
        "secret_key": properties.get("s3.secret-access-key"),
        "session_token": properties.get("s3.session-token"),
        "region": _s3_region(location, properties),
        "proxy_options": properties.get("s3.proxy-uri"),
        "role_arn": properties.get("s3.role-arn") or properties.get("client.role-arn"),
        "session_name": properties.get("s3.role-session-name") or properties.get("client.role-session-name"),
        "connect_timeout": _seconds(properties.get("s3.connect-timeout")),
        "request_timeout": _seconds(properties.get("s3.request-timeout")),
        "anonymous": _is_true(properties.get("s3.anonymous")),
        "force_virtual_addressing": _is_true(properties.get("s3.force-virtual-addressing")),
    }
    return {name: value for name, value in arguments.items() if value is not None}


def _s3_region(location: str, properties: Mapping[str, str]) -> str | None:
    region = properties.get("s3.region") or properties.get("client.region")
    if properties.get("s3.endpoint") or (region and not _is_true(properties.get("s3.resolve-region"))):
        return region
    try:
        return str(resolve_s3_region(_without_scheme(location).partition("/")[0]))
    except OSError:
        return region


def _s3_secrets(catalog_name: str | None) -> dict[str, str]:
    """The catalog's S3 keys in this machine's PyIceberg configuration; empty if there are none."""
    if catalog_name is None:
        return {}
    from pyiceberg.utils.config import Config  # costs an import that only S3 needs

    configured = Config().get_catalog_config(catalog_name) or {}
    found = {key: configured.get(f"s3.{key}") or configured.get(f"client.{key}") for key in _S3_SECRETS}
    return {f"s3.{key}": str(value) for key, value in found.items() if value}


def fsspec_filesystem(location: str, file_io: Mapping[str, str] | None = None) -> Any:
    """An fsspec file system for a location: a new instance, without a cache of listings."""
    from fsspec.core import url_to_fs  # costs an import that few tables need

    scheme = scheme_of(location)
    package, properties = _PACKAGES.get(scheme, ""), file_io or {}
    known = _FSSPEC_OPTIONS.get(package, {})
    options = {option: properties[key] for key, option in known.items() if key in properties}
    try:
        return url_to_fs(location, use_listings_cache=False, skip_instance_cache=True, **options)[0]
    except (ImportError, ValueError) as error:
        install = f"Run `pip install {package}`" if package else f"Install fsspec's package for {scheme}://"
        raise unsupported_storage(
            location,
            describe(error),
            action=f"{install} in the Python of driver and executors, or use file:, s3://, gs:// or abfs://.",
        ) from error


def open_by_fsspec(location: str, file_io: Mapping[str, str] | None = None) -> tuple[FileSystem, PathOf]:
    """`fsspec_filesystem` as an Arrow file system."""
    from fsspec.core import strip_protocol

    return PyFileSystem(FSSpecHandler(fsspec_filesystem(location, file_io))), strip_protocol


def _seconds(text: str | None) -> float | None:
    return None if text is None else float(text)


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() in ("true", "1", "yes", "on")
