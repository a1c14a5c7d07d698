"""What simulated tables with a key truly hold: rows of data files without those that position deletes remove.

Read by the rules of the specification: a delete applies to a data file of its own partition spec and partition whose
data sequence number is not higher than its own.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntryStatus, ManifestFile, read_manifest_list
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from proof.changes import RowChange
from proof.oracle import Broken, Promise, Rows
from proof.simulator.contents import Contents
from proof.simulator.keyed_files import FILE_PATH, positions_in, rows_in


@dataclass(frozen=True, slots=True)
class Stated:
    """A live file as its manifest states it.

    Attributes:
        sequence_number: The data sequence number.
        file_sequence_number: That of the snapshot that added it.
        names: The one data file that a delete file names; empty for several, and for a data file.
    """

    file: DataFile
    spec_id: int
    sequence_number: int
    file_sequence_number: int
    names: str

    @property
    def path(self) -> str:
        """Its location."""
        return str(self.file.file_path)

    @property
    def is_data(self) -> bool:
        """True for a data file."""
        return bool(self.file.content == DataFileContent.DATA)

    @property
    def entry(self) -> "Entry":
        """The entry of the file in a manifest of a later snapshot."""
        return ManifestEntryStatus.EXISTING, self.sequence_number, self.file_sequence_number, self.file

    @property
    def place(self) -> tuple[int, tuple[Any, ...]]:
        """Partition spec and partition."""
        return self.spec_id, tuple(self.file.partition[at] for at in range(len(self.file.partition)))


Entry = tuple[ManifestEntryStatus, int | None, int | None, DataFile]
"""Status, data sequence number, file sequence number, file."""


@dataclass(frozen=True, slots=True)
class LiveRow:
    """A live row, and where it is."""

    change: RowChange
    file: Stated
    position: int


@dataclass(eq=False)
class KeyedContents(Contents):
    """Reads tables with a key."""

    _lists: dict[str, list[ManifestFile]] = field(default_factory=dict)
    _stated: dict[str, tuple[Stated, ...]] = field(default_factory=dict)
    _rows: dict[str, list[RowChange]] = field(default_factory=dict)
    _positions: dict[str, dict[str, set[int]]] = field(default_factory=dict)

    def rows(self, metadata: TableMetadata, snapshot_id: int | None) -> Rows:
        """Rows that a reader of a snapshot finds; what it cannot read is noted as broken."""
        return Counter(live.change.row for live in self.live(metadata, snapshot_id))

    def live(self, metadata: TableMetadata, snapshot_id: int | None) -> list[LiveRow]:
        """The live rows of a snapshot."""
        files = self.stated(metadata, snapshot_id)
        data = {file.path: file for file in files if file.is_data}
        deleted: dict[str, set[int]] = {}
        for file in files:
            for path, positions in ({} if file.is_data else self.positions(file)).items():
                target = data.get(path)
                if target and target.place == file.place and target.sequence_number <= file.sequence_number:
                    deleted[path] = deleted.get(path, set()) | positions
        return [
            LiveRow(change, file, at)
            for file in data.values()
            for at, change in enumerate(self._read(file, self._rows, rows_in, []))
            if at not in deleted.get(file.path, ())
        ]

    def positions(self, file: Stated) -> dict[str, set[int]]:
        """The positions in a delete file, by data file."""
        found: dict[str, set[int]] = self._read(file, self._positions, positions_in, {})
        return found

    def stated(self, metadata: TableMetadata, snapshot_id: int | None) -> list[Stated]:
        """Live files of a snapshot, data files and delete files."""
        snapshot = metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
        if snapshot is None:
            return []
        return [file for manifest in self._lists_of(snapshot) for file in self._stated_in(manifest)]

    def _lists_of(self, snapshot: Snapshot) -> list[ManifestFile]:
        at = snapshot.manifest_list
        if at not in self._lists:
            found = self.read_or_note(at, lambda: list(read_manifest_list(self._io.new_input(at))))
            if found is None:
                return []
            self._lists[at] = found
        return self._lists[at]

    def _stated_in(self, manifest: ManifestFile) -> tuple[Stated, ...]:
        path = manifest.manifest_path
        if path not in self._stated:
            entries = self.read_or_note(path, lambda: tuple(self._entries_of(manifest)))
            if entries is None:
                return ()
            self._stated[path] = entries
        return self._stated[path]

    def judge_deletes(self, metadata: TableMetadata, snapshot: Snapshot) -> list[Broken]:
        """A delete file of the stream is the only one of the one data file that it names, and lies beside it."""
        files = self.stated(metadata, snapshot.snapshot_id)
        data = {file.path: file for file in files if file.is_data}
        of_file = Counter(file.names for file in files if not file.is_data)
        number = snapshot.sequence_number
        new = [file for file in files if not file.is_data and file.file_sequence_number == number]
        wrong = [f"{file.path} names no live data file" for file in new if file.names not in data]
        wrong += [f"{file.names} has {of_file[file.names]} delete files" for file in new if of_file[file.names] > 1]
        wrong += [f"{one.path} is of another partition" for one in new if data.get(one.names, one).place != one.place]
        return [Broken(Promise.EVERY_FILE_KEEPS_ITS_DELETES, what) for what in wrong]

    def _read(self, file: Stated, known: dict[str, Any], read: Any, otherwise: Any) -> Any:
        """What is in a file, which never changes."""
        if file.path not in known:
            stored = self.store.files.get(file.path)
            if stored is None:
                self.broken.append(Broken(Promise.EVERY_FILE_IS_THERE, file.path))
                return otherwise
            known[file.path] = read(stored.read())
        return known[file.path]

    def _entries_of(self, manifest: ManifestFile) -> Iterator[Stated]:
        for entry in manifest.fetch_manifest_entry(self._io, discard_deleted=True):
            file = entry.data_file
            ends = [(bounds or {}).get(FILE_PATH, b"") for bounds in (file.lower_bounds, file.upper_bounds)]
            names = ends[0].decode() if file.content != DataFileContent.DATA and ends[0] == ends[1] else ""
            number, file_number = entry.sequence_number or 0, entry.file_sequence_number or 0
            yield Stated(file, manifest.partition_spec_id, number, file_number, names)
