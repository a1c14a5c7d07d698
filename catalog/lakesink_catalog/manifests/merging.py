"""Manifest merging: keeps the manifest list, and so the cost of a commit, bounded as history grows.

Manifests of one spec are merged in tiers: many small ones become one, and only when there are many of those, they are
merged again. Every entry is therefore rewritten a logarithmic number of times. At most one merge per commit limits the
pause. Iceberg's own merge (`commit.manifest.min-count-to-merge`) is the model.

Entries are copied as bytes, never decoded and encoded again. Manifests of different layouts are not mixed. A manifest
that cannot be read exactly is kept unchanged.
"""

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table

from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.manifests.avro import Header, container, read_header
from lakesink_catalog.manifests.avro_values import Malformed
from lakesink_catalog.manifests.entries import Carried, Inherited, carry_over, layout_digest
from lakesink_catalog.manifests.partitions import field_summaries, summaries
from lakesink_catalog.manifests.write import ENTRIES_PER_BLOCK, UNASSIGNED_SEQUENCE, codec_of, new_metadata_file
from lakesink_protocol.events import Listener, ManifestSetAside, ManifestsUnmerged

HEADER_BYTES = 256 * 1024
"""Enough for the header of most manifests; a manifest with a longer header is read completely."""

Layouts = dict[str, str | None]
"""Layout digest by manifest path; None for a manifest that cannot be merged."""
LayoutsOf = Callable[[Sequence[ManifestFile]], Sequence[str | None]]
AtOnce = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Applies a function to many values, perhaps in parallel."""


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """When to merge, and how much at once: a merge is a pause within a commit.

    The first three are Iceberg's table properties. No merged manifest is larger than the target size, and none has more
    than `most_entries`.
    """

    enabled: bool = True
    min_count: int = 100
    target_size_bytes: int = 8 * 1024 * 1024
    most_entries: int = 20_000


@dataclass(slots=True)
class ManifestMerger:
    """Merges for one prepared batch; keeps its result, so that a retry does not read and write again.

    `snapshot_id` is the snapshot that adds a merged manifest; `layouts` is kept from batch to batch.
    """

    policy: MergePolicy
    snapshot_id: int
    layouts: Layouts = field(default_factory=dict)
    emit: Listener = LISTENERS
    at_once: AtOnce = map
    _merged: tuple[frozenset[str], ManifestFile] | None = field(default=None)

    def merge(self, table: Table, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """The same files in fewer manifests; unchanged if no merge is due or possible."""
        present = {manifest.manifest_path for manifest in manifests}
        for path in self.layouts.keys() - present:
            del self.layouts[path]
        if self._merged is None or not self._merged[0] <= present:
            self._merged = self._try(table, manifests)
        if self._merged is None:
            return list(manifests)
        replaced, merged = self._merged
        kept = [manifest for manifest in manifests if manifest.manifest_path not in replaced]
        return [_fresh(merged), *kept]

    def _try(self, table: Table, manifests: Sequence[ManifestFile]) -> tuple[frozenset[str], ManifestFile] | None:
        group: Sequence[ManifestFile] = ()
        try:
            mergeable = [one for one in manifests if self.layouts.get(one.manifest_path, "") is not None]
            group = choose(mergeable, self.policy, partial(self._layouts_of, table.io))
            merged = self._write_merged(table, group) if group else None
        except Exception as error:  # noqa: BLE001 # merging only saves time; the manifests can stay as they are
            self.emit(ManifestsUnmerged(len(group), type(error).__name__))
            return None
        return None if merged is None else (frozenset(manifest.manifest_path for manifest in group), merged)

    def _layouts_of(self, io: FileIO, manifests: Sequence[ManifestFile]) -> list[str | None]:
        paths = [manifest.manifest_path for manifest in manifests]
        new = [path for path in paths if path not in self.layouts]
        failed: list[Exception] = []
        for path, found in zip(new, self.at_once(partial(_layout, io), new), strict=True):
            if isinstance(found, Malformed):
                self._set_aside(path, found)
            elif isinstance(found, Exception):
                failed.append(found)
            else:
                self.layouts[path] = found
        if failed:  # the next commit need not read the others again
            raise failed[0]
        return [self.layouts[path] for path in paths]

    def _set_aside(self, path: str, error: Malformed) -> None:
        self.emit(ManifestSetAside(path, str(error)))
        self.layouts[path] = None

    def _write_merged(self, table: Table, group: Sequence[ManifestFile]) -> ManifestFile | None:
        data = self.at_once(partial(_read, table.io), group)
        carried = [self._carried(manifest, found) for manifest, found in zip(group, data, strict=True)]
        entries = [entry for part in carried for entry in part.entries]
        if not entries:
            return None
        newest, kinds = carried[-1].header, carried[-1].kinds
        parts = [entries[start : start + ENTRIES_PER_BLOCK] for start in range(0, len(entries), ENTRIES_PER_BLOCK)]
        output = new_metadata_file(table, f"{self.snapshot_id}-{uuid.uuid4()}-merged.avro")
        metadata = {**newest.metadata, "avro.schema": json.dumps(newest.schema).encode()}
        length = _write(output, container(metadata, codec_of(table), parts))
        return ManifestFile.from_args(
            manifest_path=output.location,
            manifest_length=length,
            partition_spec_id=group[-1].partition_spec_id,
            content=ManifestContent.DATA,
            sequence_number=UNASSIGNED_SEQUENCE,
            min_sequence_number=_least_sequence_number(carried),
            added_snapshot_id=self.snapshot_id,
            added_files_count=0,
            existing_files_count=len(entries),
            deleted_files_count=0,
            added_rows_count=0,
            existing_rows_count=sum(part.rows for part in carried),
            deleted_rows_count=0,
            partitions=field_summaries(summaries(kinds, {each for part in carried for each in part.partitions})),
            key_metadata=None,
        )

    def _carried(self, manifest: ManifestFile, data: bytes) -> Carried:
        """The live entries of a manifest, whose size and counts must agree with the manifest list."""
        try:
            carried = carry_over(data, Inherited(manifest.added_snapshot_id, manifest.sequence_number))
            _check_counts(manifest, carried, len(data))
        except Malformed as error:
            self._set_aside(manifest.manifest_path, error)
            raise
        return carried


def choose(manifests: Sequence[ManifestFile], policy: MergePolicy, layouts_of: LayoutsOf) -> list[ManifestFile]:
    """The manifests to merge now, or none: of the lowest full tier, those with the most common layout.

    Several of them must fit into one; otherwise the next layout or tier is tried. `layouts_of` returns None for a
    manifest that cannot be merged; it is called only for full tiers.
    """
    for members in _full_tiers(manifests, policy):
        by_layout: dict[str | None, list[ManifestFile]] = defaultdict(list)
        for manifest, layout in zip(members, layouts_of(members), strict=True):
            by_layout[layout].append(manifest)
        by_layout.pop(None, None)
        for alike in sorted(by_layout.values(), key=len, reverse=True):
            group = list(_fitting(alike, policy))
            if len(group) > 1:
                return group
    return []


def _full_tiers(manifests: Sequence[ManifestFile], policy: MergePolicy) -> list[list[ManifestFile]]:
    """The full tiers of every spec, the lowest first."""
    if not policy.enabled:
        return []
    tiers: dict[tuple[int, int], list[ManifestFile]] = defaultdict(list)
    for manifest in manifests:
        if _is_mergeable(manifest, policy):
            tiers[_tier(manifest, policy.min_count), manifest.partition_spec_id].append(manifest)
    return [members for _, members in sorted(tiers.items()) if len(members) >= max(policy.min_count, 2)]


def _is_mergeable(manifest: ManifestFile, policy: MergePolicy) -> bool:
    """Whether the manifest list allows a merge.

    A manifest that is more than half full, in bytes or in entries, stays as it is: two of them may not fit into one,
    and as the oldest of its tier it would prevent all merges of the others. Format version 1 has no sequence numbers to
    write out.
    """
    short = 2 * manifest.manifest_length <= policy.target_size_bytes and 2 * _entries(manifest) <= policy.most_entries
    plain = manifest.content == ManifestContent.DATA and not manifest.key_metadata
    return short and plain and manifest.sequence_number > 0


def _tier(manifest: ManifestFile, base: int) -> int:
    files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    tier = 0
    while files >= max(base, 2):
        files //= max(base, 2)
        tier += 1
    return tier


def _entries(manifest: ManifestFile) -> int:
    """All entries, which a merge must read; it leaves out those of deleted files."""
    counts = manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count
    return sum(count or 0 for count in counts)


def _fitting(members: Sequence[ManifestFile], policy: MergePolicy) -> Iterator[ManifestFile]:
    """The oldest members that together stay within the limits of one manifest."""
    size = entries = 0
    for manifest in sorted(members, key=lambda member: member.sequence_number):
        size += manifest.manifest_length
        entries += _entries(manifest)
        if size > policy.target_size_bytes or entries > policy.most_entries:
            return
        yield manifest


def _layout(io: FileIO, path: str) -> str | Exception:
    try:
        return layout_digest(_header(io.new_input(path)))
    except Exception as error:  # noqa: BLE001 - storage clients raise classes of their own
        return error


def _read(io: FileIO, manifest: ManifestFile) -> bytes:
    with io.new_input(manifest.manifest_path).open() as stream:
        return stream.read()


def _header(file: InputFile) -> Header:
    with file.open() as stream:
        data = stream.read(HEADER_BYTES)
        try:
            return read_header(data)
        except Malformed:
            if len(data) < HEADER_BYTES:
                raise
            return read_header(data + stream.read())


def _write(output: OutputFile, data: bytes) -> int:
    with output.create(overwrite=True) as stream:
        stream.write(data)
    return len(data)


def _check_counts(manifest: ManifestFile, carried: Carried, length: int) -> None:
    files = manifest.added_files_count, manifest.existing_files_count
    rows = manifest.added_rows_count, manifest.existing_rows_count
    for stated, found in ((files, len(carried.entries)), (rows, carried.rows)):
        if None not in stated and sum(count or 0 for count in stated) != found:
            raise Malformed("it has other files or rows than the manifest list states")
    if length != manifest.manifest_length:
        raise Malformed("it has another size than the manifest list states")


def _least_sequence_number(carried: Iterable[Carried]) -> int:
    """Readers ignore delete files older than this."""
    return min(part.min_sequence_number for part in carried if part.min_sequence_number is not None)


def _fresh(manifest: ManifestFile) -> ManifestFile:
    """An independent copy: PyIceberg writes the sequence number into the object that it gets."""
    return ManifestFile(*manifest._data)  # noqa: SLF001 # Record offers no other way to copy its values
