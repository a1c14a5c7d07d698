"""What a batch reads, from the query's checkpoint: its offsets, where they start, and the files of file sources.

Two readers share one small protocol: through the JVM's Hadoop file system on the driver (`lakesink.spark.hadoop`),
which has every scheme and credential that Spark has, and through fsspec elsewhere. Nothing here writes or needs Spark.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import fsspec

from lakesink.spark.offsets import (
    NOTHING_WRITTEN,
    log_offset,
    parse_initial_offset,
    parse_offset_log,
    parse_query_id,
    source_log_lines,
    source_log_tail,
    unreadable,
)
from lakesink_catalog.errors import QueryError
from lakesink_catalog.identity import Batch, stream_batch

Offsets = tuple[Any, ...]


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


class FsspecFiles:
    """Files of a checkpoint through fsspec, where there is no JVM: in the command line and in planner processes.

    Args:
        root: The checkpoint, a local path or a URI that fsspec knows.
    """

    def __init__(self, root: str) -> None:
        self._system, self._root = fsspec.core.url_to_fs(root, use_listings_cache=False)

    def read(self, path: str) -> bytes | None:
        """See `CheckpointFiles`."""
        try:
            return bytes(self._system.cat_file(self._at(path)))
        except FileNotFoundError:
            return None

    def size_bytes(self, path: str) -> int | None:
        """See `CheckpointFiles`."""
        try:
            return int(self._system.size(self._at(path)))
        except FileNotFoundError:
            return None

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See `CheckpointFiles`."""
        return bytes(self._system.cat_file(self._at(path), start=start, end=start + length))

    def names(self, folder: str) -> list[str]:
        """See `CheckpointFiles`."""
        try:
            return [str(name).rsplit("/", 1)[-1] for name in self._system.ls(self._at(folder), detail=False)]
        except FileNotFoundError:
            return []

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint of one query.

    Attributes:
        files: How it is read.
        folders: For every source of the offset log, in its order, the number of its folder below ``sources``; None if
            they are the same. They differ where one source is read twice: Spark then logs its offset twice.
    """

    files: CheckpointFiles
    folders: tuple[int, ...] | None = None

    def query_id(self) -> str:
        """Id that the checkpoint gives to its query.

        Raises:
            QueryError: The checkpoint has none.
        """
        content = self.files.read("metadata")
        if content is None:
            raise unreadable("its metadata file, which holds the query id, is missing")
        return parse_query_id(content.decode())

    def offsets(self, batch_id: int) -> Offsets:
        """End offsets of a batch, by source.

        Raises:
            QueryError: The checkpoint does not have them, or not in a form that is known.
        """
        content = self.files.read(f"offsets/{batch_id}")
        if content is None:
            raise unreadable(f"offsets/{batch_id} is missing")
        return parse_offset_log(content.decode())

    def newest_batch(self) -> int:
        """Id of the newest batch that has offsets: Spark logs them before the batch runs, and runs no older one.

        Raises:
            QueryError: The checkpoint has none.
        """
        batches = [int(name) for name in self.files.names("offsets") if name.isdecimal()]
        if not batches:
            raise unreadable("it has no offsets; give it as an absolute path or a full URI")
        return max(batches)

    def has_state(self) -> bool:
        """True if the query keeps state from batch to batch: windows, duplicates that it has seen, joins."""
        return bool(self.files.names("state"))

    def check_folders(self, end: Offsets) -> None:
        """Check that every file source has a folder of its own number, as is assumed where `folders` is not known.

        Args:
            end: End offsets of a batch.

        Raises:
            QueryError: Some source is read twice; only the running query can tell which.
        """
        numbers = [source for source, value in enumerate(end) if log_offset(value) is not None]
        if numbers and not set(map(str, numbers)) <= set(self.files.names("sources")):
            raise QueryError(
                "SOURCE_READ_TWICE",
                "The query reads a source twice, and its checkpoint does not tell which.",
                data=NOTHING_WRITTEN,
                action="Use lakesink.stream for this query, which can ask the query itself.",
            )

    def batch(self, query_id: str, batch_id: int, end: Offsets, previous: Offsets | None = None) -> Batch:
        """What Spark asks for with `batch_id`, with its fingerprint.

        Args:
            query_id: Id of the query.
            batch_id: Id of the batch.
            end: Its end offsets, see `offsets`.
            previous: End offsets of the batch before, if they are at hand; else they are read.

        Raises:
            QueryError: The checkpoint does not tell what the batch reads.
        """
        if batch_id > 0 and previous is None:
            previous = self.offsets(batch_id - 1)
        if previous is not None and len(previous) != len(end):
            raise unreadable(f"offsets/{batch_id} knows {len(end)} sources, the batch before {len(previous)}")
        return stream_batch(
            batch_id,
            query_id,
            start=self._initial(len(end)) if previous is None else previous,
            end=end,
            source_log=[line for source in self._file_sources(end, previous) for line in self._read_log(*source)],
        )

    def _initial(self, sources: int) -> list[Any] | None:
        """Where the first batch starts, if every source says so itself."""
        found = [self._initial_offset(self._folder(source)) for source in range(sources)]
        return None if None in found else found

    def _initial_offset(self, folder: int) -> dict[str, Any] | None:
        content = self.files.read(f"sources/{folder}/0")
        return None if content is None else parse_initial_offset(content)

    def _file_sources(self, end: Offsets, previous: Offsets | None) -> Iterator[tuple[int, int, int]]:
        """Folder and range of log offsets of every file source that has something new; each folder once."""
        seen: set[int] = set()
        for source, value in enumerate(end):
            upto = log_offset(value)
            after = log_offset(previous[source]) if previous is not None else None
            after = -1 if after is None else after
            folder = self._folder(source)
            if upto is not None and after < upto and folder not in seen:
                seen.add(folder)
                yield folder, after, upto

    def _folder(self, source: int) -> int:
        return source if self.folders is None else self.folders[source]

    def _read_log(self, folder: int, after: int, upto: int) -> list[str]:
        """Entries of a file source's log, newest file first until one holds all earlier entries too."""
        found: list[str] = []
        for position in range(upto, after, -1):
            content = self.files.read(f"sources/{folder}/{position}")
            if content is None:
                return self._read_compacted(folder, after, position) + found
            found = source_log_lines(content.decode(), after, position) + found
        return found

    def _read_compacted(self, folder: int, after: int, upto: int) -> list[str]:
        path = f"sources/{folder}/{upto}.compact"
        size = self.files.size_bytes(path)
        if size is None:
            path = f"sources/{folder}/{self._compaction_at_or_above(folder, upto)}.compact"
            size = self.files.size_bytes(path)
        if size is None:
            raise unreadable(f"the log of file source {folder} lacks entry {upto}")
        return source_log_tail(lambda start, length: self.files.read_range(path, start, length), size, after, upto)

    def _compaction_at_or_above(self, folder: int, position: int) -> int | None:
        """A later compaction, for entries whose own file Spark has removed since."""
        names = (re.fullmatch(r"(\d+)\.compact", name) for name in self.files.names(f"sources/{folder}"))
        return min((int(name[1]) for name in names if name and int(name[1]) >= position), default=None)


def same_checkpoint(session: Any, given: str, resolved: str) -> bool:
    """True if Spark, resolving the checkpoint `given`, comes to the folder `resolved`."""
    jvm = session.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way to Hadoop's file systems
    path = jvm.org.apache.hadoop.fs.Path(given)
    conf = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - as above
    return str(path.getFileSystem(conf).makeQualified(path).toString()) == resolved


def source_folders(sources: Sequence[Any]) -> tuple[int, ...]:
    """Number of each source's folder: sources count in the order in which they first appear."""
    first: list[Any] = []
    for source in sources:
        if source not in first:
            first.append(source)
    return tuple(first.index(source) for source in sources)
