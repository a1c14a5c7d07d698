"""What retained snapshots reference. Reads each manifest list and manifest once, several at a time."""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import TypeVar

from pyiceberg import manifest as iceberg
from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.typedef import StructProtocol

from lakesink_catalog.read.past import FileCounts, PastCommit
from lakesink_protocol.redact import describe

_TYPES: dict[int, Callable[..., StructProtocol]] = {-1: iceberg.ManifestEntry, 2: iceberg.DataFile}
_ENUMS: dict[int, Callable[..., Enum]] = {
    0: iceberg.ManifestEntryStatus,
    101: iceberg.FileFormat,
    134: iceberg.DataFileContent,
}
"""By field ids of a manifest's entries."""
AT_ONCE = 16
_LONGEST_TURN = 32
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Entry:
    """A live file as its manifest states it."""

    path: str  # with the scheme
    size_bytes: int
    rows: int  # rows of a data file, deletes of a delete file
    added_by: int  # id of the snapshot that added it
    content: iceberg.DataFileContent
    is_parquet: bool  # True if it has a footer to compare with
    is_new: bool  # True if the manifest was written by the snapshot that added the file

    @property
    def is_data(self) -> bool:
        """False for delete files."""
        return self.content is iceberg.DataFileContent.DATA


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest: what its list states, and its live files."""

    path: str
    stated: tuple[int, int] | None  # live files and rows by the manifest list; None if not stated
    entries: tuple[Entry, ...]  # live files


@dataclass(slots=True)
class Inventory:
    """Reads what snapshots reference, and remembers it."""

    io: FileIO
    damaged: dict[str, str] = field(default_factory=dict, init=False)  # location of an unreadable file -> the reason
    _manifests: dict[str, Manifest] = field(default_factory=dict, init=False)
    _paths: dict[int, tuple[str, ...]] = field(default_factory=dict, init=False)

    def read(self, commits: Iterable[PastCommit], *, only_own: bool = False) -> None:
        """Read manifest lists and manifests that are not known yet; `only_own` for those that the commits wrote.

        Raises an OSError if the storage failed. A missing file is recorded as damaged instead.
        """
        unread = [commit for commit in commits if commit.snapshot_id not in self._paths]
        lists = self._attempts(_live_manifests, [commit.snapshot.manifest_list for commit in unread])
        files: dict[str, iceberg.ManifestFile] = {}
        for commit, manifests in zip(unread, lists, strict=True):
            chosen = [
                manifest
                for manifest in manifests or ()
                if not only_own or manifest.added_snapshot_id == commit.snapshot_id
            ]
            self._paths[commit.snapshot_id] = tuple(manifest.manifest_path for manifest in chosen)
            files |= {manifest.manifest_path: manifest for manifest in chosen}
        unknown = [path for path in files if path not in self._manifests and path not in self.damaged]
        for manifest in self._attempts(lambda path, io: _manifest(files[path], io), unknown):
            if manifest is not None:
                self._manifests[manifest.path] = manifest

    def find_lists(self, commits: Iterable[PastCommit]) -> None:
        """Check that manifest lists which were not read exist."""
        lists = [commit.snapshot.manifest_list for commit in commits if commit.snapshot_id not in self._paths]
        self._attempts(lambda location, io: len(io.new_input(location)), lists)

    def entries(self, commit: PastCommit) -> Iterator[Entry]:
        """The live files in undamaged manifests of a snapshot that was read, once for each reference."""
        known = (self._manifests.get(path) for path in self._paths.get(commit.snapshot_id, ()))
        return (entry for manifest in known if manifest is not None for entry in manifest.entries)

    def known(self) -> Iterator[Manifest]:
        """Every manifest that was read."""
        return iter(self._manifests.values())

    def is_whole(self, commit: PastCommit) -> bool:
        """True if no list or manifest of the snapshot is damaged."""
        paths = self._paths.get(commit.snapshot_id, ())
        return commit.snapshot.manifest_list not in self.damaged and not any(path in self.damaged for path in paths)

    def _attempts(self, read: Callable[[str, FileIO], R], locations: Sequence[str]) -> list[R | None]:
        """What was read at each location. Damage is recorded in their order, whichever thread was first."""

        def attempt(location: str) -> tuple[R | None, str]:
            try:
                return read(location, self.io), ""
            except FileNotFoundError:
                return None, "it is not there"
            except OSError:
                raise
            except Exception as error:  # noqa: BLE001 - PyIceberg's decoder raises whatever the bytes lead to
                return None, describe(error, self.io.properties)

        found = list(at_once(attempt, locations))
        self.damaged |= {location: why for location, (_, why) in zip(locations, found, strict=True) if why}
        return [one for one, _ in found]


def frontier(commits: Mapping[int, PastCommit]) -> list[int]:
    """The fewest retained snapshots that together reference everything that any retained snapshot references.

    An append keeps everything of its parent, so a parent with a retained append adds nothing. A batch of changes by key
    keeps the data files of its parent. It may replace delete files, and the snapshots that added these show them:
    see `replacing`.
    """
    kept = {commit.parent_snapshot_id for commit in commits.values() if _keeps_parent(commit, commits)}
    return [snapshot_id for snapshot_id in commits if snapshot_id not in kept]


def replacing(commits: Mapping[int, PastCommit]) -> list[PastCommit]:
    """The commits whose own manifests may show delete files that `frontier` does not."""
    if all(commit.changes is None for commit in commits.values()):
        return []
    return [commit for commit in commits.values() if not commit.is_append]


def _keeps_parent(commit: PastCommit, commits: Mapping[int, PastCommit]) -> bool:
    """The oldest retained snapshot counts for itself: its delete files may be of snapshots that have expired."""
    if commit.is_append:
        return True
    keeps_data = commit.changes is not None and not commit.removed.files  # rows go by delete files only
    parent = commits.get(commit.parent_snapshot_id or 0)
    return keeps_data and parent is not None and parent.parent_snapshot_id in commits


def sums(entries: Iterable[Entry]) -> dict[int, FileCounts]:
    """What the files hold, by the snapshot that added them. As in summaries, the bytes are those of all files."""
    found: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for entry in entries:
        counts = found[entry.added_by]
        counts[2] += entry.size_bytes
        if entry.is_data:
            counts[0] += 1
            counts[1] += entry.rows
        else:
            counts[3] += 1
            counts[4] += entry.rows if entry.content is iceberg.DataFileContent.POSITION_DELETES else 0
    return {snapshot_id: FileCounts(*found.pop(snapshot_id)) for snapshot_id in list(found)}  # never both forms of all


def _live_manifests(location: str, io: FileIO) -> list[iceberg.ManifestFile]:
    found = iceberg.read_manifest_list(io.new_input(location))
    return [one for one in found if one.has_added_files() or one.has_existing_files()]


def _manifest(file: iceberg.ManifestFile, io: FileIO) -> Manifest:
    """Read the live entries as `ManifestFile.fetch_manifest_entry` does, but one at a time."""
    schema = iceberg.MANIFEST_ENTRY_SCHEMAS[iceberg.DEFAULT_READ_VERSION]
    source = io.new_input(file.manifest_path)
    with AvroFile[iceberg.ManifestEntry](source, schema, read_types=_TYPES, read_enums=_ENUMS) as entries:
        live = tuple(_entry(entry, file) for entry in entries if entry.status != iceberg.ManifestEntryStatus.DELETED)
    counts = (file.added_files_count, file.existing_files_count, file.added_rows_count, file.existing_rows_count)
    known = [count for count in counts if count is not None]
    stated = (known[0] + known[1], known[2] + known[3]) if len(known) == len(counts) else None
    return Manifest(file.manifest_path, stated, live)


def _entry(entry: iceberg.ManifestEntry, manifest: iceberg.ManifestFile) -> Entry:
    file = entry.data_file
    return Entry(
        path=file.file_path,
        size_bytes=file.file_size_in_bytes,
        rows=file.record_count,
        added_by=(manifest.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id) or 0,
        content=iceberg.DataFileContent(file.content),
        is_parquet=file.file_format == iceberg.FileFormat.PARQUET,
        is_new=entry.status == iceberg.ManifestEntryStatus.ADDED,
    )


def at_once(call: Callable[[T], R], items: Collection[T]) -> Iterator[R]:
    """The results in the order of the items; a storage answers late, so a few are waited for at a time.

    Raises what a call raises. Of many items, a thread takes several in a turn: to hand over one costs as much as to
    look at a local file.
    """
    rest, length = iter(items), min(_LONGEST_TURN, 1 + len(items) // (4 * AT_ONCE))
    turns = iter(lambda: list(islice(rest, length)), [])
    waiting: deque[Future[list[R]]] = deque()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for turn in turns:
            waiting.append(pool.submit(list, map(call, turn)))
            if len(waiting) > 2 * AT_ONCE:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
