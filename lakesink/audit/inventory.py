"""What retained snapshots reference: manifest lists and manifests, each read once, several at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
)
from pyiceberg.table.snapshots import Snapshot

from lakesink_protocol.redact import describe

AT_ONCE = 16
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Entry:
    """A live file as its manifest states it.

    Attributes:
        path: Location, scheme included.
        size_bytes: Size of the file.
        rows: Rows, or deletes, in it.
        added_by: Snapshot that brought it.
        is_data: False for files of deletes.
        is_parquet: True if it has a footer to compare with.
        is_new: True where the manifest was written by the snapshot that brought the file.
    """

    path: str
    size_bytes: int
    rows: int
    added_by: int
    is_data: bool
    is_parquet: bool
    is_new: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest: what the list states of it, and what it holds.

    Attributes:
        path: Location.
        added_by: Snapshot that wrote it.
        stated: Live files and rows by the manifest list; None where the list does not say.
        entries: Its live files.
    """

    path: str
    added_by: int
    stated: tuple[int, int] | None
    entries: tuple[Entry, ...]


@dataclass(slots=True)
class Inventory:
    """Reads what snapshots reference, and remembers it.

    Attributes:
        io: The table's files.
        damaged: What could not be read because it is missing or malformed: location -> why.
    """

    io: FileIO
    damaged: dict[str, str] = field(default_factory=dict)
    _manifests: dict[str, Manifest] = field(default_factory=dict)
    _paths: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def read(self, snapshots: Iterable[Snapshot]) -> None:
        """Read lists and manifests of these snapshots, as far as they are not known yet.

        Raises:
            OSError: The storage failed otherwise than by saying that a file is not there.
        """
        wanted = [snapshot for snapshot in snapshots if snapshot.snapshot_id not in self._paths]
        self._read_manifests(wanted, lambda _snapshot, _manifest: True)

    def read_own(self, snapshots: Iterable[Snapshot]) -> None:
        """As `read`, but only the manifests that these snapshots wrote themselves; `manifests` then shows no others."""
        wanted = [snapshot for snapshot in snapshots if snapshot.snapshot_id not in self._paths]
        self._read_manifests(wanted, lambda snapshot, manifest: manifest.added_snapshot_id == snapshot.snapshot_id)

    def find_lists(self, snapshots: Iterable[Snapshot]) -> None:
        """See that the manifest lists of these snapshots are there, as far as they were not read.

        Raises:
            OSError: As `read`.
        """
        lists = [snapshot.manifest_list for snapshot in snapshots if snapshot.snapshot_id not in self._paths]
        _at_once(lambda location: self._attempt(location, lambda: len(self.io.new_input(location))), lists)

    def manifests(self, snapshot: Snapshot) -> list[Manifest]:
        """The manifests of a snapshot that was read, without those that are damaged."""
        paths = self._paths.get(snapshot.snapshot_id, ())
        return [self._manifests[path] for path in paths if path in self._manifests]

    def entries(self, snapshot: Snapshot) -> Iterator[Entry]:
        """The live files of a snapshot that was read, as often as it references them."""
        return (entry for manifest in self.manifests(snapshot) for entry in manifest.entries)

    def known(self) -> Iterator[Manifest]:
        """Every manifest that was read."""
        return iter(self._manifests.values())

    def is_whole(self, snapshot: Snapshot) -> bool:
        """True if nothing of the snapshot is damaged."""
        paths = self._paths.get(snapshot.snapshot_id, ())
        return snapshot.manifest_list not in self.damaged and not any(path in self.damaged for path in paths)

    def _read_manifests(self, snapshots: Sequence[Snapshot], wanted: Callable[[Snapshot, ManifestFile], bool]) -> None:
        lists = _at_once(self._list, [snapshot.manifest_list for snapshot in snapshots])
        files: dict[str, ManifestFile] = {}
        for snapshot, manifests in zip(snapshots, lists, strict=True):
            chosen = [manifest for manifest in manifests if wanted(snapshot, manifest)]
            self._paths[snapshot.snapshot_id] = tuple(manifest.manifest_path for manifest in chosen)
            files |= {manifest.manifest_path: manifest for manifest in chosen}
        unknown = [file for path, file in files.items() if path not in self._manifests and path not in self.damaged]
        for manifest in _at_once(self._manifest, unknown):
            if manifest is not None:
                self._manifests[manifest.path] = manifest

    def _list(self, location: str) -> list[ManifestFile]:
        found = self._attempt(location, lambda: list(read_manifest_list(self.io.new_input(location))))
        return [manifest for manifest in found or () if manifest.has_added_files() or manifest.has_existing_files()]

    def _manifest(self, file: ManifestFile) -> Manifest | None:
        entries = self._attempt(file.manifest_path, lambda: tuple(_entries(file, self.io)))
        if entries is None:
            return None
        return Manifest(file.manifest_path, file.added_snapshot_id or 0, _stated(file), entries)

    def _attempt(self, location: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except FileNotFoundError:
            self.damaged[location] = "it is not there"
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - PyIceberg's decoder raises whatever the bytes lead to
            self.damaged[location] = describe(error, self.io.properties)
        return None


def sums(entries: Iterable[Entry]) -> dict[int, tuple[int, int, int]]:
    """Data files, rows and bytes by the snapshot that brought them."""
    found: dict[int, tuple[int, int, int]] = {}
    for entry in entries:
        if entry.is_data:
            files, rows, size = found.get(entry.added_by, (0, 0, 0))
            found[entry.added_by] = (files + 1, rows + entry.rows, size + entry.size_bytes)
    return found


def _at_once(call: Callable[[T], R], items: Sequence[T]) -> list[R]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(call, items))


def _entries(manifest: ManifestFile, io: FileIO) -> Iterator[Entry]:
    for entry in manifest.fetch_manifest_entry(io):
        file = entry.data_file
        yield Entry(
            path=file.file_path,
            size_bytes=file.file_size_in_bytes,
            rows=file.record_count,
            added_by=entry.snapshot_id or 0,
            is_data=file.content == DataFileContent.DATA,
            is_parquet=file.file_format == FileFormat.PARQUET,
            is_new=entry.status == ManifestEntryStatus.ADDED,
        )


def _stated(file: ManifestFile) -> tuple[int, int] | None:
    counts = (file.added_files_count, file.existing_files_count, file.added_rows_count, file.existing_rows_count)
    if any(count is None for count in counts):
        return None
    added, existing, added_rows, existing_rows = (count or 0 for count in counts)
    return added + existing, added_rows + existing_rows
