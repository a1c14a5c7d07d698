"""Reads from the query's checkpoint what a batch covers: its start and end offsets, and its input files.

`CheckpointFiles` has two implementations. `lakesink.spark.hadoop` uses the JVM's Hadoop file system on the driver, with
all schemes and credentials of Spark; `FsspecFiles` works elsewhere. Nothing here writes or needs Spark.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import fsspec

from lakesink.checkpoint.offsets import (
    Ends,
    Keys,
    Offsets,
    log_offset,
    parse_initial_offset,
    parse_offset_log,
    parse_query_id,
    source_log_lines,
    source_log_paths,
    source_log_tail,
    unreadable,
)
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.words import counted
from lakesink_protocol.errors import QueryError
from lakesink_protocol.events import InputUnchecked
from lakesink_protocol.identity import Batch, stream_batch
from lakesink_protocol.redact import describe

CHECKS_AT_ONCE = 16


class CheckpointFiles(Protocol):
    """Reads files below a checkpoint; paths are relative to it. Called on the thread that runs the batch."""

    def read(self, path: str) -> bytes | None:
        """Content of a file, or None if there is none."""

    def size_bytes(self, path: str) -> int | None:
        """Size of a file, or None if there is none."""

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Exactly `length` bytes from `start`."""

    def names(self, folder: str) -> list[str]:
        """Names in a folder, in any order; empty if there is no such folder."""

    def is_there(self, uri: str) -> bool:
        """True if a file exists, inside the checkpoint or elsewhere. Called on several threads."""


class FsspecFiles:
    """Files of a checkpoint through fsspec, for processes without a JVM: the command line and Spark's planners."""

    def __init__(self, root: str) -> None:
        self._system, self._root = fsspec.core.url_to_fs(root, use_listings_cache=False)

    def read(self, path: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return bytes(self._system.cat_file(self._at(path)))
        return None

    def size_bytes(self, path: str) -> int | None:
        with suppress(FileNotFoundError):
            return int(self._system.size(self._at(path)))
        return None

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return bytes(self._system.cat_file(self._at(path), start=start, end=start + length))

    def names(self, folder: str) -> list[str]:
        with suppress(FileNotFoundError):
            return [str(name).rsplit("/", 1)[-1] for name in self._system.ls(self._at(folder), detail=False)]
        return []

    def is_there(self, uri: str) -> bool:
        """See `CheckpointFiles`. Returns True, with a warning, for a file that cannot be checked here."""
        folder, _, name = uri.rpartition("/")  # fsspec reads "::" in a file name as a chain of file systems
        try:
            system, path = fsspec.core.url_to_fs(f"{folder}/", use_listings_cache=False)
        except (ImportError, ValueError) as error:
            LISTENERS(InputUnchecked(describe(error)))
            return True
        return bool(system.exists(f"{path.rstrip('/')}/{name}"))

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"


@dataclass(frozen=True, slots=True)
class BatchInput:
    """What a batch reads, as the checkpoint shows it.

    Attributes:
        batch: With the fingerprint of all of it.
        start: Offsets at its beginning as a ledger stores them; None if its sources do not store them.
        end: Offsets at its end.
        source_logs: Its lines in the log of each file source, by the source's key in the offset log.
    """

    batch: Batch
    start: Ends | None
    end: Ends
    source_logs: Mapping[str, Sequence[str]]

    @property
    def paths(self) -> list[str]:
        """URIs of its input files, each once."""
        return source_log_paths(line for lines in self.source_logs.values() for line in lines)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint of one query.

    `folders` has each source's folder number; None if these are the positions. They differ if a source is read twice.
    """

    files: CheckpointFiles
    folders: tuple[int, ...] | None = None

    def query_id(self) -> str:
        """The query id in the checkpoint's metadata."""
        content = self.files.read("metadata")
        if content is None:
            raise unreadable("its metadata file, which contains the query id, is missing")
        return parse_query_id(content.decode())

    def offsets(self, batch_id: int) -> Offsets:
        """End offsets of a batch, by source."""
        content = self.files.read(f"offsets/{batch_id}")
        if content is None:
            raise unreadable(f"offsets/{batch_id} is missing")
        return parse_offset_log(content.decode())

    def batches(self, log: str) -> list[int]:
        """The batches in one of its logs, ``offsets`` or ``commits``, ascending."""
        return sorted(int(name) for name in self.files.names(log) if name.isascii() and name.isdecimal())

    def newest_batch(self) -> int:
        """Id of the newest batch with offsets: Spark writes them before the batch runs, and never runs an older one."""
        if planned := self.batches("offsets"):
            return planned[-1]
        raise unreadable("it has no offsets; give it as an absolute path or a full URI")

    def has_state(self) -> bool:
        """True if the query keeps state between batches: windows, deduplication, joins."""
        return bool(self.files.names("state"))

    def check_folders(self, end: Offsets) -> None:
        """Check that every file source has a folder of its number, which fails if a source is read twice."""
        if end.keys is not Keys.POSITIONS:
            return
        numbers = {source for source, value in end.ends.items() if log_offset(value) is not None}
        if numbers and not numbers <= set(self.files.names("sources")):
            raise QueryError.of("SOURCE_READ_TWICE")

    def input_to_run(self, query_id: str, batch_id: int, end: Offsets, previous: Offsets | None = None) -> BatchInput:
        """What the batch reads, with the missing input files: Spark skips them silently."""
        found = self._input(query_id, batch_id, end, previous)
        paths = found.paths
        if not paths:
            return found
        with ThreadPoolExecutor(CHECKS_AT_ONCE) as pool:
            there = list(pool.map(self.files.is_there, paths))
        missing = tuple(path for path, seen in zip(paths, there, strict=True) if not seen)
        return replace(found, batch=replace(found.batch, missing_inputs=missing))

    def batch(self, query_id: str, batch_id: int, end: Offsets, previous: Offsets | None = None) -> Batch:
        """The batch `batch_id` with its fingerprint; reads the previous end offsets if `previous` is None."""
        return self._input(query_id, batch_id, end, previous).batch

    def input_of(self, batch_id: int) -> BatchInput:
        """What a batch read; raises QueryError if Spark does not keep it any more."""
        return self._input(self.query_id(), batch_id, self.offsets(batch_id), None)

    def _input(self, query_id: str, batch_id: int, end: Offsets, previous: Offsets | None) -> BatchInput:
        if batch_id > 0 and previous is None:
            previous = self.offsets(batch_id - 1)
        if previous is not None:
            self._check_sources(batch_id, previous, end)
        start = self._initial(end) if previous is None else previous.by_source
        logs = {
            source: self._read_log(folder, after, upto)
            for source, folder, after, upto in self._file_sources(end, previous)
        }
        lines = [line for log in logs.values() for line in log]
        batch = stream_batch(batch_id, query_id, start=start, end=end.by_source, source_log=lines)
        return BatchInput(batch, start, end.by_source, logs)

    def _check_sources(self, batch_id: int, previous: Offsets, end: Offsets) -> None:
        """Check the sources against the previous batch: named ones may come and go, positional ones never decrease."""
        if end.keys is Keys.POSITIONS and previous.keys is Keys.POSITIONS and len(previous.ends) > len(end.ends):
            raise unreadable(
                f"offsets/{batch_id} has {counted(len(end.ends), 'source')}, the batch before {len(previous.ends)}"
            )
        if end.keys is not previous.keys and not len(end.ends) == len(previous.ends) == 1:
            raise unreadable(f"offsets/{batch_id} lists its sources by {end.keys.value}, the batch before does not")
        added = set(end.ends) - set(previous.ends) if end.keys is previous.keys is Keys.NAMES else set()
        for older in reversed(self.batches("offsets")) if added else ():
            came_back = added & set(self.offsets(older).ends) if older < batch_id - 1 else ()
            if came_back:
                raise QueryError.of(
                    "SOURCE_CAME_BACK", name=min(came_back)[:60], was_in=older, batch_id=batch_id, before=batch_id - 1
                )

    def _initial(self, end: Offsets) -> Ends | None:
        """Start offsets of the first batch; None unless every source stores its own."""
        found = {}
        for source in end.sources():
            folder = self._folder(end.keys, source)
            content = None if folder is None else self.files.read(f"sources/{folder}/0")
            found[source] = None if content is None else parse_initial_offset(content)
        return None if None in found.values() else Offsets(found, end.keys).by_source

    def _file_sources(self, end: Offsets, previous: Offsets | None) -> Iterator[tuple[str, str, int, int]]:
        """Key, folder and log offset range of each file source with new files; each folder once."""
        seen: set[str] = set()
        for source in end.sources():
            upto = log_offset(end.ends[source])
            after = None
            if previous is not None:  # a single source may have received a name since then
                same = previous.keys is end.keys
                after = log_offset(previous.ends.get(source) if same else next(iter(previous.ends.values())))
            after = -1 if after is None else after
            if upto is None or after >= upto:
                continue
            folder = self._folder(end.keys, source)
            if folder is None:
                raise unreadable("sources/ has not exactly one folder, and its offsets do not name their source")
            if folder not in seen:
                seen.add(folder)
                yield source, folder, after, upto

    def _folder(self, keys: Keys, source: str) -> str | None:
        """Name of a source's folder below ``sources``; None if it is ambiguous."""
        if keys is Keys.NAMES:
            return source
        if keys is Keys.UNKNOWN:
            names = [name for name in self.files.names("sources") if not name.startswith(".")]
            return names[0] if len(names) == 1 else None
        return source if self.folders is None else str(self.folders[int(source)])

    def _read_log(self, folder: str, after: int, upto: int) -> list[str]:
        """Entries of a file source's log, read backwards until a file contains all earlier entries too."""
        found: list[str] = []
        for position in range(upto, after, -1):
            content = self.files.read(f"sources/{folder}/{position}")
            if content is None:
                return self._read_compacted(folder, after, position) + found
            found = source_log_lines(content.decode(), after, position) + found
        return found

    def _read_compacted(self, folder: str, after: int, upto: int) -> list[str]:
        path = f"sources/{folder}/{upto}.compact"
        size = self.files.size_bytes(path)
        if size is None:  # Spark has deleted the entry's own file, and a later compaction has it
            names = (re.fullmatch(r"(\d+)\.compact", name) for name in self.files.names(f"sources/{folder}"))
            later = min((int(name[1]) for name in names if name and int(name[1]) >= upto), default=None)
            path = f"sources/{folder}/{later}.compact"
            size = self.files.size_bytes(path)
        if size is None:
            raise unreadable(f"the log of file source {folder} lacks entry {upto}")
        return source_log_tail(lambda start, length: self.files.read_range(path, start, length), size, after, upto)


def source_folders(sources: Sequence[Any]) -> tuple[int, ...]:
    """Folder number of each source: Spark numbers sources in the order of their first appearance."""
    first: list[Any] = []
    for source in sources:
        if source not in first:
            first.append(source)
    return tuple(first.index(source) for source in sources)
