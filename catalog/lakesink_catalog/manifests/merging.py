"""Manifest merging: keeps the manifest list, and so the cost of a commit, bounded as history grows.

Manifests of one spec are merged in tiers: many small ones become one, and only when there are many of those, they are
merged again. Every entry is therefore rewritten a logarithmic number of times. At most one merge at a time, of which
each commit does a part, limits the pause. Iceberg's own merge (`commit.manifest.min-count-to-merge`) is the model.

Manifests of different layouts are not mixed. A manifest that cannot be read exactly is kept unchanged.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from pyiceberg.io import FileIO, InputFile
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table

from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.manifests.avro import Header, read_header
from lakesink_catalog.manifests.avro_values import Malformed
from lakesink_catalog.manifests.copying import AtOnce, ManifestCopy, ManifestMalformed
from lakesink_catalog.manifests.entries import layout_digest
from lakesink_catalog.manifests.lists import entries_of
from lakesink_catalog.manifests.write import codec_of
from lakesink_protocol.events import Listener, ManifestSetAside, ManifestsUnmerged

HEADER_BYTES = 256 * 1024
"""Enough for the header of most manifests; a manifest with a longer header is read completely."""

Layouts = dict[str, str | None]
"""Layout digest by manifest path; None for a manifest that cannot be merged."""
LayoutsOf = Callable[[Sequence[ManifestFile]], Sequence[str | None]]
Identity = tuple[str, int, int, int | None]
Merged = tuple[frozenset[Identity], ManifestFile]
"""A merged manifest and those that it replaces."""


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """When to merge, and how much at once: a merge is a pause within a commit.

    The first three are Iceberg's table properties. No merged manifest is larger than the target size, and none has more
    than `most_entries`. A merge of more than `entries_per_commit` is spread over several commits where possible.
    """

    enabled: bool = True
    min_count: int = 100
    target_size_bytes: int = 8 * 1024 * 1024
    most_entries: int = 20_000
    entries_per_commit: int = 1_000


@dataclass(slots=True)
class MergeMemory:
    """What a sink remembers of its merges from batch to batch, in memory only.

    Attributes:
        copy: The merge that is under way.
        snapshot_id: The snapshot of the newest batch, if its commit landed.
    """

    layouts: Layouts = field(default_factory=dict)
    copy: ManifestCopy | None = field(default=None, init=False)
    snapshot_id: int | None = None


@dataclass(slots=True)
class ManifestMerger:
    """Merges for one prepared batch; keeps its result, so that a retry does not read and write again.

    A process that alone commits to the branch spreads a merge over its commits. Any other copies at once, because the
    work would be lost if the process ended, or if a rival merged the same manifests. After batches of few files, a
    commit either chooses what is merged, which reads headers, or copies, or writes. The first batch of a process
    leaves a long merge to the next one, unless so much waits that all earlier processes must have ended too early.

    Attributes:
        snapshot_id: The snapshot of the batch, which adds a merged manifest.
        adds: Entries that the batch itself adds. A commit copies half as many more: merges keep up with batches.
    """

    policy: MergePolicy
    snapshot_id: int
    memory: MergeMemory = field(default_factory=MergeMemory)
    emit: Listener = LISTENERS
    at_once: AtOnce = map
    adds: int = 0
    _merged: Merged | None = field(default=None, init=False)
    _previous: int | None = field(init=False)

    def __post_init__(self) -> None:
        self._previous = self.memory.snapshot_id

    def merge(self, table: Table, manifests: Sequence[ManifestFile], head: int | None = None) -> list[ManifestFile]:
        """The same files in fewer manifests; unchanged if no merge is due, finished or possible.

        `head` is the snapshot of these manifests.
        """
        self.memory.snapshot_id = self.snapshot_id
        layouts = self.memory.layouts
        for path in layouts.keys() - {manifest.manifest_path for manifest in manifests}:
            del layouts[path]
        if self._merged is None or not self._merged[0] <= _identities(manifests):
            self._merged = self._try(table, manifests, head)
        if self._merged is None:
            return list(manifests)
        replaced, merged = self._merged
        # PyIceberg writes the sequence number into the object that it gets, and offers no other way to copy one.
        fresh = ManifestFile(*merged._data)  # noqa: SLF001
        return [fresh, *(manifest for manifest in manifests if _identity(manifest) not in replaced)]

    def _try(self, table: Table, manifests: Sequence[ManifestFile], head: int | None) -> Merged | None:
        alone = head is not None and head == self._previous
        calm = alone and self.adds <= self.policy.entries_per_commit
        copy, self.memory.copy = self.memory.copy, None  # a copy that fails is begun anew
        try:
            if copy is None or not self.policy.enabled or not _identities(copy.group) <= _identities(manifests):
                copy = self._begin(table, manifests, first=head is not None and self._previous is None)
                if copy is not None and calm and copy.effort > self.policy.entries_per_commit:
                    self.memory.copy = copy
                    return None
            if copy is None:
                return None
            most = max(self.policy.entries_per_commit, self.adds * 3 // 2) if alone else copy.entries
            if not copy.step(table.io, self.at_once, most, ends_apart=calm):
                self.memory.copy = copy
                return None
            merged = copy.write(table, self.snapshot_id)
        except Exception as error:  # noqa: BLE001 # merging only saves time; the manifests can stay as they are
            if isinstance(error, ManifestMalformed):
                self._set_aside(error.path, error)
            self.emit(ManifestsUnmerged(len(copy.group) if copy else 0, type(error).__name__))
            return None
        return None if merged is None else (_identities(copy.group), merged)

    def _begin(self, table: Table, manifests: Sequence[ManifestFile], *, first: bool) -> ManifestCopy | None:
        mergeable = [one for one in manifests if self.memory.layouts.get(one.manifest_path, "") is not None]
        group = choose(mergeable, self.policy, partial(self._layouts_of, table.io))
        if first and sum(map(entries_of, group)) > self.policy.entries_per_commit:
            group = choose(mergeable, self.policy, partial(self._layouts_of, table.io), times=2)
        return ManifestCopy(group, codec_of(table)) if group else None

    def _layouts_of(self, io: FileIO, manifests: Sequence[ManifestFile]) -> list[str | None]:
        paths = [manifest.manifest_path for manifest in manifests]
        new = [path for path in paths if path not in self.memory.layouts]
        failed: list[Exception] = []
        for path, found in zip(new, self.at_once(partial(_layout, io), new), strict=True):
            if isinstance(found, Malformed):
                self._set_aside(path, found)
            elif isinstance(found, Exception):
                failed.append(found)
            else:
                self.memory.layouts[path] = found
        if failed:  # the next commit need not read the others again
            raise failed[0]
        return [self.memory.layouts[path] for path in paths]

    def _set_aside(self, path: str, error: Malformed) -> None:
        self.emit(ManifestSetAside(path, str(error)))
        self.memory.layouts[path] = None


def choose(
    manifests: Sequence[ManifestFile], policy: MergePolicy, layouts_of: LayoutsOf, *, times: int = 1
) -> list[ManifestFile]:
    """The manifests to merge now, or none: of the lowest full tier, those with the most common layout.

    Several of them must fit into one; otherwise the next layout or tier is tried. `layouts_of` returns None for a
    manifest that cannot be merged; it is called only for full tiers, or for those that are full so many `times`.
    """
    for members in _full_tiers(manifests, policy, times):
        by_layout: dict[str | None, list[ManifestFile]] = defaultdict(list)
        for manifest, layout in zip(members, layouts_of(members), strict=True):
            by_layout[layout].append(manifest)
        by_layout.pop(None, None)
        for alike in sorted(by_layout.values(), key=len, reverse=True):
            group = list(_fitting(alike, policy))
            if len(group) > 1:
                return group
    return []


def _full_tiers(manifests: Sequence[ManifestFile], policy: MergePolicy, times: int) -> list[list[ManifestFile]]:
    """The full tiers of every spec, the lowest first."""
    if not policy.enabled:
        return []
    tiers: dict[tuple[int, int], list[ManifestFile]] = defaultdict(list)
    for manifest in manifests:
        if _is_mergeable(manifest, policy):
            files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
            tier = 0
            while files >= max(policy.min_count, 2):
                files //= max(policy.min_count, 2)
                tier += 1
            tiers[tier, manifest.partition_spec_id].append(manifest)
    return [members for _, members in sorted(tiers.items()) if len(members) >= times * max(policy.min_count, 2)]


def _is_mergeable(manifest: ManifestFile, policy: MergePolicy) -> bool:
    """False in format version 1, which has no sequence numbers to write out, and for a manifest more than half full."""
    # two of those may not fit into one, and as the oldest of its tier it would prevent all merges of the others
    short = 2 * manifest.manifest_length <= policy.target_size_bytes and 2 * entries_of(manifest) <= policy.most_entries
    plain = manifest.content == ManifestContent.DATA and not manifest.key_metadata
    return short and plain and manifest.sequence_number > 0


def _fitting(members: Sequence[ManifestFile], policy: MergePolicy) -> Iterator[ManifestFile]:
    """The oldest members that together stay within the limits of one manifest."""
    size = entries = 0
    for manifest in sorted(members, key=lambda member: member.sequence_number):
        size += manifest.manifest_length
        entries += entries_of(manifest)
        if size > policy.target_size_bytes or entries > policy.most_entries:
            return
        yield manifest


def _layout(io: FileIO, path: str) -> str | Exception:
    try:
        return layout_digest(_header(io.new_input(path)).metadata)
    except Exception as error:  # noqa: BLE001 - storage clients raise classes of their own
        return error


def _header(file: InputFile) -> Header:
    with file.open() as stream:
        data = stream.read(HEADER_BYTES)
        try:
            return read_header(data)
        except Malformed:
            if len(data) < HEADER_BYTES:
                raise
            return read_header(data + stream.read())


def _identities(manifests: Iterable[ManifestFile]) -> frozenset[Identity]:
    return frozenset(map(_identity, manifests))


def _identity(manifest: ManifestFile) -> Identity:
    """Equal only for one file with one origin: its entries inherit the rest from the manifest list."""
    return (manifest.manifest_path, manifest.manifest_length, manifest.sequence_number, manifest.added_snapshot_id)
