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
from itertools import chain, islice, starmap
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from lakesink_catalog.manifests.avro import Header, container_of_blocks, packed_block, read_header
from lakesink_catalog.manifests.avro_values import Malformed
from lakesink_catalog.manifests.entries import EXISTING, Inherited, NewEntry, carry_over, partition_kinds
from lakesink_catalog.manifests.lists import entries_of
from lakesink_catalog.manifests.partitions import summaries
from lakesink_catalog.manifests.write import ENTRIES_PER_BLOCK, as_listed, new_metadata_file

Part = Sequence[NewEntry | None]
AtOnce = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Applies a function to many values, perhaps in parallel."""

ENTRIES_PER_PART = 250
"""A manifest has any number of entries; these are copied in a few milliseconds."""
ENTRIES_PER_READ = 10
"""To read a manifest takes as long as to copy so many entries."""


class ManifestMalformed(Malformed):
    """One of the manifests cannot be read exactly, or the manifest list states something else of it."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(why)
        self.path = path


@dataclass(slots=True)
class ManifestCopy:
    """A copy of a group of manifests of one layout, the oldest first. After an error it is of no further use."""

    group: Sequence[ManifestFile]
    codec: str
    _unread: deque[ManifestFile] = field(init=False)
    _parts: Iterator[tuple[Header, Part]] = field(default_factory=lambda: iter(()))
    _header: Header | None = None
    _read: int = 0
    _blocks: list[bytes] = field(default_factory=list)
    _entries: list[bytes] = field(default_factory=list)
    _copied: int = 0
    _rows: int = 0
    _partitions: set[tuple[bytes | None, ...]] = field(default_factory=set)
    _sequence_numbers: set[int] = field(default_factory=set)

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
        return as_listed(
            output.location,
            len(data),
            {EXISTING: (self._copied, self._rows)},
            spec_id=self.group[-1].partition_spec_id,
            snapshot_id=snapshot_id,
            partitions=summaries(partition_kinds(self._header.schema), self._partitions),
            min_sequence_number=min(self._sequence_numbers),  # readers ignore older delete files
        )

    def _next(self, io: FileIO, at_once: AtOnce, most: int) -> tuple[Header, Part] | None:
        while (part := next(self._parts, None)) is None:
            if not self._unread:
                return None
            members = [self._unread.popleft()]
            while self._unread and sum(map(entries_of, [*members, self._unread[0]])) <= most:
                members.append(self._unread.popleft())
            data = list(at_once(partial(contents, io), members))
            self._parts = chain.from_iterable(starmap(_carried, zip(members, data, strict=True)))
        return part

    def _take(self, header: Header, part: Part) -> None:
        self._header = header  # in the end, that of the newest
        self._read += len(part)
        for entry in filter(None, part):
            assert entry.sequence_number is not None, "written out"
            self._copied += 1
            self._rows += entry.rows
            self._partitions.add(entry.partition)
            self._sequence_numbers.add(entry.sequence_number)
            self._entries.append(entry.encoded)
            if len(self._entries) == ENTRIES_PER_BLOCK:
                self._blocks.append(packed_block(self.codec, self._entries))
                self._entries = []


def contents(io: FileIO, manifest: ManifestFile) -> bytes:
    """The bytes of a manifest; raises `ManifestMalformed` unless they are as many as the manifest list states."""
    with io.new_input(manifest.manifest_path).open() as stream:
        data = stream.read()
    if len(data) != manifest.manifest_length:
        raise ManifestMalformed(manifest.manifest_path, "it has another size than the manifest list states")
    return data


def _carried(manifest: ManifestFile, data: bytes) -> Iterator[tuple[Header, Part]]:
    """The entries of a manifest part by part. Their counts must agree with the manifest list."""
    files = rows = 0
    try:
        header = read_header(data)
        entries = carry_over(data, header, Inherited(manifest.added_snapshot_id, manifest.sequence_number))
        while part := list(islice(entries, ENTRIES_PER_PART)):
            live = [entry.rows for entry in part if entry is not None]
            files, rows = files + len(live), rows + sum(live)
            yield header, part
        check_counts(manifest, files, rows)
    except Malformed as error:
        raise ManifestMalformed(manifest.manifest_path, str(error)) from error


def check_counts(manifest: ManifestFile, files: int, rows: int) -> None:
    """Raise `Malformed` unless so many live entries, with so many rows, are what the manifest list states."""
    stated_files = manifest.added_files_count, manifest.existing_files_count
    stated_rows = manifest.added_rows_count, manifest.existing_rows_count
    for stated, found in ((stated_files, files), (stated_rows, rows)):
        if None not in stated and sum(count or 0 for count in stated) != found:
            raise Malformed("it has other files or rows than the manifest list states")
