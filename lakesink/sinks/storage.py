"""Reads and writes a sink's small files, such as markers and prepared records, in a local or remote folder.

Storages differ in one operation: creating a file *exclusively and atomically*. If two processes create the same file,
one gets an error, and no reader sees a partial file. Local file systems use a hard link, object stores a conditional
put. WebHDFS uses a rename, which its NameNode refuses if the target exists. `Storage.create` refuses all other
storages. `prove_exclusive` tests the storage itself.
"""

import errno
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lakesink.parquet.filesystem import fsspec_filesystem, local_path, scheme_of
from lakesink.rows.task_errors import unsupported_storage
from lakesink_protocol.errors import LakesinkError, WriteError
from lakesink_protocol.redact import describe

CONDITIONAL_PUT = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""Schemes whose fsspec client sends a real precondition. Other clients check first and write later: not atomic."""

EXCLUSIVE_RENAME = frozenset({"webhdfs"})
PARALLEL_REQUESTS = 16
_ALTERNATIVES = "Use a local or mounted folder, s3://, gs://, abfs:// or webhdfs://."
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


class Storage(ABC):
    """Files by full location. Creates missing folders; raises the storage client's own errors, mostly `OSError`."""

    @abstractmethod
    def read(self, location: str) -> bytes | None:
        """Content of a file; None if it does not exist."""

    @abstractmethod
    def size(self, location: str) -> int | None:
        """Size of a file in bytes; None if it does not exist."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Last path segments of a folder's entries, in any order; empty if the folder does not exist."""

    @abstractmethod
    def listing(self, folder: str) -> dict[str, int]:
        """Sizes in bytes of a folder's files, by the last path segment; empty if the folder does not exist."""

    @abstractmethod
    def replace(self, location: str, data: bytes) -> None:
        """Create or replace a file atomically; a power failure may undo this."""

    @abstractmethod
    def create(self, location: str, data: bytes) -> None:
        """Create a new file atomically.

        Raises:
            FileExistsError: The file exists. After any other error, it is unknown whether the file was created.
            WriteError: This storage cannot create files exclusively.
        """

    @abstractmethod
    def remove(self, location: str) -> None:
        """Remove one file."""

    def read_all(self, locations: Sequence[str]) -> list[bytes | None]:
        """Contents of several files in parallel, in the given order."""
        with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
            return list(pool.map(self.read, locations))

    def sizes(self, locations: Sequence[str]) -> list[int | None]:
        """Sizes of several files in parallel, in the given order."""
        with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
            return list(pool.map(self.size, locations))


class LocalStorage(Storage):
    """A local or mounted file system."""

    def read(self, location: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return Path(local_path(location)).read_bytes()
        return None

    def size(self, location: str) -> int | None:
        with suppress(FileNotFoundError):
            return Path(local_path(location)).stat().st_size
        return None

    def names(self, folder: str) -> list[str]:
        with suppress(FileNotFoundError):
            return os.listdir(local_path(folder))  # noqa: PTH208 - `iterdir` takes twice as long for many records
        return []

    def listing(self, folder: str) -> dict[str, int]:
        sizes = {}
        with suppress(FileNotFoundError), os.scandir(local_path(folder)) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # a draft that another process removed meanwhile
                    sizes[entry.name] = entry.stat().st_size
        return sizes

    def replace(self, location: str, data: bytes) -> None:
        with _draft(Path(local_path(location)), data, durable=False) as draft:
            draft.replace(local_path(location))

    def create(self, location: str, data: bytes) -> None:
        """See `Storage.create`: a hard link to a complete draft fails if the target exists."""
        with _draft(Path(local_path(location)), data, durable=True) as draft:
            try:
                Path(local_path(location)).hardlink_to(draft)
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise _not_exclusive(location, "the file system has no hard links.") from error
                raise
        sync(Path(local_path(location)).parent)

    def remove(self, location: str) -> None:
        Path(local_path(location)).unlink()


class ObjectStorage(Storage):
    """An fsspec file system; `create` is a conditional put."""

    def __init__(self, filesystem: Any) -> None:
        self._files = filesystem

    def read(self, location: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return bytes(self._files.cat_file(location))
        return None

    def size(self, location: str) -> int | None:
        with suppress(FileNotFoundError):
            return int(self._files.size(location))
        return None

    def names(self, folder: str) -> list[str]:
        return [_last_segment(found["name"]) for found in self._listed(folder)]

    def listing(self, folder: str) -> dict[str, int]:
        files = (found for found in self._listed(folder) if found["type"] == "file")
        return {_last_segment(found["name"]): int(found["size"]) for found in files}

    def replace(self, location: str, data: bytes) -> None:
        self._files.pipe_file(location, data)

    def create(self, location: str, data: bytes) -> None:
        """See `Storage.create`: a conditional put; refuses stores whose client does not send the condition."""
        check_exclusive(location)
        self._files.pipe_file(location, data, mode="create")

    def remove(self, location: str) -> None:
        self._files.rm_file(location)

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        with suppress(FileNotFoundError):
            return list(self._files.ls(folder, detail=True))
        return []


class RenamingStorage(ObjectStorage):
    """A file system whose rename never overwrites. Its client reports no failed rename: fsspec ignores the answer."""

    def replace(self, location: str, data: bytes) -> None:
        self._make_folder_of(location)
        super().replace(location, data)

    def create(self, location: str, data: bytes) -> None:
        """See `Storage.create`: the file's content shows which process's rename succeeded."""
        self._make_folder_of(location)
        draft = _draft_name(location)
        self._files.pipe_file(draft, data)
        self._files.mv(self._path(draft), self._path(location))
        if self.read(location) != data:
            with suppress(OSError):
                self._files.rm_file(draft)
            raise FileExistsError(errno.EEXIST, "the file exists", location)

    def _path(self, location: str) -> str:
        return str(self._files._strip_protocol(location))  # noqa: SLF001 - a rename takes paths, not URIs

    def _make_folder_of(self, location: str) -> None:
        self._files.makedirs(location.rpartition("/")[0], exist_ok=True)


def check_exclusive(location: str) -> None:
    """Refuse a location by its scheme if files cannot be created exclusively there."""
    scheme = scheme_of(location)
    if scheme != "file" and scheme not in CONDITIONAL_PUT | EXCLUSIVE_RENAME:
        why = "Arrow overwrites the target of a rename" if scheme == "hdfs" else "lakesink knows no safe method"
        raise _not_exclusive(location, f"{why} on {scheme}://.")


def open_storage(location: str) -> Storage:
    """The storage of a location; connects when it is first used."""
    scheme = scheme_of(location)
    if scheme == "file":
        return LocalStorage()
    filesystem = fsspec_filesystem(location)
    return RenamingStorage(filesystem) if scheme in EXCLUSIVE_RENAME else ObjectStorage(filesystem)


def prove_exclusive(storage: Storage, folder: str) -> None:
    """Create one file twice, and check that the first content stays: some servers ignore the condition."""
    location = f"{folder}/probe-{uuid.uuid4()}"
    first = uuid.uuid4().bytes
    _create_first(storage, location, first)
    refused = False
    try:
        storage.create(location, uuid.uuid4().bytes)
    except OSError:  # some clients do not recognize the store's error code for an existing file
        refused = True
    kept = storage.read(location) == first
    with suppress(OSError):
        storage.remove(location)
    if not (refused and kept):
        raise _not_exclusive(location, "a second request to create the same file was not refused, or replaced it.")


def _create_first(storage: Storage, location: str, data: bytes) -> None:
    """Create a file under a new name."""
    # FileExistsError: the client repeated a request after a lost answer; another refusal may be about the condition
    try:
        storage.create(location, data)
    except FileExistsError:
        return
    except PermissionError:
        raise
    except OSError as error:
        try:
            storage.replace(location, data)
        except OSError:
            raise error from None
        with suppress(OSError):
            storage.remove(location)
        why = f"it accepts a plain put and refuses a conditional one ({describe(error)[:80]})."
        raise _not_exclusive(location, why) from error


@contextmanager
def failures_as(error_of: Callable[[Exception], LakesinkError]) -> Iterator[None]:
    """Convert a storage's exceptions inside the block: each storage client has its own exception classes."""
    try:
        yield
    except LakesinkError:
        raise
    except Exception as error:
        raise error_of(error) from error


@contextmanager
def _draft(target: Path, data: bytes, *, durable: bool) -> Iterator[Path]:
    """A complete draft file beside its target, removed at the end."""
    make_folder(target.parent)
    draft = Path(_draft_name(str(target)))
    try:
        with draft.open("xb") as stream:
            stream.write(data)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _draft_name(location: str) -> str:
    folder, _, name = location.rpartition("/")
    return f"{folder}/.{name}.{uuid.uuid4()}"


def _last_segment(name: Any) -> str:
    return str(name).rstrip("/").rpartition("/")[2]


def _not_exclusive(location: str, why: str) -> WriteError:
    return unsupported_storage(location, f"the storage cannot create files exclusively: {why}", action=_ALTERNATIVES)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, and flush each parent folder: they then survive a power failure."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def sync(path: Path) -> None:
    """Flush a file to disk, or a folder's entries: files created or renamed in it then survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
