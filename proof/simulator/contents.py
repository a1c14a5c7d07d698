"""What tables of the simulated store truly hold, read from manifests: files that are in a snapshot, and their rows."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    read_manifest_list,
)
from pyiceberg.table.metadata import TableMetadata

from proof.oracle import Broken, Promise, Rows
from proof.simulator.store import SimulatedIO, SimulatedStore

T = TypeVar("T")


@dataclass(eq=False)
class Contents:
    """Reads tables.

    Attributes:
        store: What is stored.
        broken: What was found to be wrong.
    """

    store: SimulatedStore
    broken: list[Broken] = field(default_factory=list)
    _files: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def rows(self, metadata: TableMetadata, snapshot_id: int | None) -> Rows:
        """Rows that a reader of a snapshot finds; what it cannot read is noted as broken."""
        found: Rows = Counter()
        for path in self.files(metadata, snapshot_id):
            stored = self.store.files.get(path)
            if stored is None:
                self.broken.append(Broken(Promise.EVERY_FILE_IS_THERE, path))
            elif stored.rows is None:
                self.broken.append(Broken(Promise.EVERY_FILE_IS_AS_STATED, f"{path} is torn"))
            else:
                found += stored.rows
        return found

    def files(self, metadata: TableMetadata, snapshot_id: int | None) -> list[str]:
        """Live data files of a snapshot."""
        return [path for manifest in self.manifests(metadata, snapshot_id) for path in self._data_files(manifest)]

    def added(self, metadata: TableMetadata, snapshot_id: int, parent_id: int | None) -> set[str]:
        """Live data files of a snapshot that its parent has not."""
        return set(self.files(metadata, snapshot_id)) - set(self.files(metadata, parent_id))

    def manifests(self, metadata: TableMetadata, snapshot_id: int | None) -> tuple[str, ...]:
        """Manifests of a snapshot; empty for no snapshot."""
        snapshot = metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
        return () if snapshot is None else self._once(snapshot.manifest_list, self._listed)

    def reachable(self, metadata: TableMetadata) -> set[str]:
        """Everything that retained snapshots refer to: manifest lists, manifests, data files."""
        found: set[str] = set()
        for snapshot in metadata.snapshots:
            manifests = self.manifests(metadata, snapshot.snapshot_id)
            found |= {snapshot.manifest_list, *manifests}
            found.update(path for manifest in manifests for path in self._data_files(manifest))
        return found

    def _data_files(self, manifest: str) -> tuple[str, ...]:
        return self._once(manifest, self._entries)

    def _once(self, path: str, read: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
        """These files never change once they are referenced, so one look is enough; that is checked elsewhere."""
        if path not in self._files:
            found = self.read_or_note(path, partial(read, path))
            if found is None:
                return ()
            self._files[path] = found
        return self._files[path]

    def read_or_note(self, path: str, read: Callable[[], T]) -> T | None:
        """What a file of metadata says; None for one that cannot be read, which is noted as broken."""
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - however a file of metadata cannot be read
            self.broken.append(Broken(Promise.EVERY_FILE_IS_AS_STATED, f"{path}: {type(error).__name__}"))
            return None

    def _listed(self, path: str) -> tuple[str, ...]:
        return tuple(manifest.manifest_path for manifest in read_manifest_list(self._io.new_input(path)))

    def _entries(self, path: str) -> tuple[str, ...]:
        with AvroFile[ManifestEntry](
            self._io.new_input(path),
            MANIFEST_ENTRY_SCHEMAS[2],
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as entries:
            return tuple(entry.data_file.file_path for entry in entries if entry.status != ManifestEntryStatus.DELETED)

    @property
    def _io(self) -> SimulatedIO:
        return SimulatedIO(self.store, quiet=True)


def head_of(metadata: TableMetadata, branch: str) -> int | None:
    """Snapshot of a branch."""
    ref = metadata.refs.get(branch)
    return None if ref is None else ref.snapshot_id
