"""Copies the live entries of several manifests into one, in steps: each commit copies some of them.

Entries are copied as bytes, never decoded and encoded again. Copied entries are kept compressed, in memory. Nothing is
written before all are copied, so an unfinished copy leaves no file.
"""

import json
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, starmap
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table

from lakesink_catalog.manifests.avro import Header, container_of_blocks, packed_block, read_header
from lakesink_catalog.manifests.avro_values import Malformed
from lakesink_catalog.manifests.entries import Carried, Inherited, carry_over, partition_kinds
from lakesink_catalog.manifests.partitions import field_summaries, summaries
from lakesink_catalog.manifests.write import ENTRIES_PER_BLOCK, UNASSIGNED_SEQUENCE, codec_of, new_metadata_file

AtOnce = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Applies a function to many values, perhaps in parallel."""


ENTRIES_PER_READ = 10
"""To read a manifest takes as long as to copy so many entries."""


class ManifestMalformed(Malformed):
    """One of the manifests cannot be read exactly, or the manifest list states something else of it."""

    def __init__(self, path: str, error: Malformed) -> None:
        super().__init__(str(error))
        self.path = path


def entries_of(manifest: ManifestFile) -> int:
    """All entries that the manifest list states. A copy reads them all; it leaves out those of deleted files."""
    counts = manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count
    return sum(count or 0 for count in counts)


@dataclass(slots=True)
class ManifestCopy:
    """A copy of a group of manifests of one layout, the oldest first. After an error it is of no further use."""

    group: tuple[ManifestFile, ...]
    codec: str
    _unread: deque[ManifestFile] = field(init=False)
    _parts: Iterator[tuple[Header, Carried]] = field(default_factory=lambda: iter(()))
    _header: Header | None = None
    _read: int = 0
    _blocks: list[bytes] = field(default_factory=list)
    _entries: list[bytes] = field(default_factory=list)
    _copied: int = 0
    _rows: int = 0
    _partitions: set[tuple[bytes | None, ...]] = field(default_factory=set)
    _sequence_numbers: set[int] = field(default_factory=set)

    @classmethod
    def begin(cls, table: Table, group: Sequence[ManifestFile]) -> "ManifestCopy":
        """A copy with nothing copied yet, in the table's codec of now."""
        return cls(tuple(group), codec_of(table))

    def __post_init__(self) -> None:
        self._unread = deque(self.group)

    @property
    def entries(self) -> int:
        """The entries to read, as stated."""
        return sum(map(entries_of, self.group))

    @property
    def effort(self) -> int:
        """The entries that could be copied in the time of this copy: small manifests take longer than their entries."""
        return self.entries + ENTRIES_PER_READ * len(self.group)

    def step(self, io: FileIO, at_once: AtOnce, most: int, *, ends_apart: bool = False) -> bool:
        """Read so many more entries, up to the end of a part. Returns True once all manifests are read and checked.

        With `ends_apart`, the last of several steps reads nothing: to write the merged manifest takes a while too.
        """
        stated, begun = self.entries, self._read
        while self._read < begun + most or self._read >= stated:
            part = self._next(io, at_once, most)
            if part is None:
                return not (ends_apart and 0 < begun < self._read)
            self._take(*part)
        return False

    def write(self, table: Table, snapshot_id: int) -> ManifestFile | None:
        """Write the merged manifest, which this snapshot adds, after the last step; None if there is no live entry."""
        if not self._copied:
            return None
        assert self._header is not None
        blocks = [*self._blocks, *([packed_block(self.codec, self._entries)] if self._entries else [])]
        output = new_metadata_file(table, f"{snapshot_id}-{uuid.uuid4()}-merged.avro")
        metadata = {**self._header.metadata, "avro.schema": json.dumps(self._header.schema).encode()}
        data = container_of_blocks(metadata, self.codec, blocks)
        with output.create(overwrite=True) as stream:
            stream.write(data)
        return ManifestFile.from_args(
            manifest_path=output.location,
            manifest_length=len(data),
            partition_spec_id=self.group[-1].partition_spec_id,
            content=ManifestContent.DATA,
            sequence_number=UNASSIGNED_SEQUENCE,
            min_sequence_number=min(self._sequence_numbers),  # readers ignore older delete files
            added_snapshot_id=snapshot_id,
            added_files_count=0,
            existing_files_count=self._copied,
            deleted_files_count=0,
            added_rows_count=0,
            existing_rows_count=self._rows,
            deleted_rows_count=0,
            partitions=field_summaries(summaries(partition_kinds(self._header.schema), self._partitions)),
            key_metadata=None,
        )

    def _next(self, io: FileIO, at_once: AtOnce, most: int) -> tuple[Header, Carried] | None:
        while (part := next(self._parts, None)) is None:
            if not self._unread:
                return None
            members = [self._unread.popleft()]
            while self._unread and sum(map(entries_of, [*members, self._unread[0]])) <= most:
                members.append(self._unread.popleft())
            data = list(at_once(partial(contents, io), members))
            self._parts = chain.from_iterable(starmap(_carried, zip(members, data, strict=True)))
        return part

    def _take(self, header: Header, part: Carried) -> None:
        self._header = header  # in the end, that of the newest
        self._read += part.read
        self._copied += len(part.entries)
        self._rows += part.rows
        self._partitions |= part.partitions
        if part.min_sequence_number is not None:
            self._sequence_numbers.add(part.min_sequence_number)
        self._entries += part.entries
        while len(self._entries) >= ENTRIES_PER_BLOCK:
            self._blocks.append(packed_block(self.codec, self._entries[:ENTRIES_PER_BLOCK]))
            del self._entries[:ENTRIES_PER_BLOCK]


def contents(io: FileIO, manifest: ManifestFile) -> bytes:
    """The bytes of a manifest."""
    with io.new_input(manifest.manifest_path).open() as stream:
        return stream.read()


def _carried(manifest: ManifestFile, data: bytes) -> Iterator[tuple[Header, Carried]]:
    """The live entries of a manifest, whose size and counts must agree with the manifest list."""
    files = rows = 0
    try:
        check_size(manifest, len(data))
        header = read_header(data)
        for part in carry_over(data, header, Inherited(manifest.added_snapshot_id, manifest.sequence_number)):
            files, rows = files + len(part.entries), rows + part.rows
            yield header, part
        check_counts(manifest, files, rows)
    except Malformed as error:
        raise ManifestMalformed(manifest.manifest_path, error) from error


def check_size(manifest: ManifestFile, length: int) -> None:
    """Raise `Malformed` unless the file has the size that the manifest list states."""
    if length != manifest.manifest_length:
        raise Malformed("it has another size than the manifest list states")


def check_counts(manifest: ManifestFile, files: int, rows: int) -> None:
    """Raise `Malformed` unless so many live entries, with so many rows, are what the manifest list states."""
    stated_files = manifest.added_files_count, manifest.existing_files_count
    stated_rows = manifest.added_rows_count, manifest.existing_rows_count
    for stated, found in ((stated_files, files), (stated_rows, rows)):
        if None not in stated and sum(count or 0 for count in stated) != found:
            raise Malformed("it has other files or rows than the manifest list states")
