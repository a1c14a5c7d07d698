"""Manifest merging, so that the manifest list and with it the cost of a commit stay bounded as history grows.

Manifests of one spec are merged a tier at a time: many small ones into one, and only when as many of those have come
together are they merged again, so that every entry is rewritten a logarithmic number of times. At most one merge a
commit bounds the pause. Iceberg's own merge (`commit.manifest.min-count-to-merge`) is the model.
"""

import logging
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table

from lakesink_catalog.manifests import UNASSIGNED_SEQUENCE, codec_of, new_metadata_file, write_entries
from lakesink_catalog.partitions import partition_summaries

logger = logging.getLogger("lakesink")


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """When to merge.

    Attributes:
        enabled: ``commit.manifest-merge.enabled``.
        min_count: ``commit.manifest.min-count-to-merge``.
        target_size_bytes: ``commit.manifest.target-size-bytes``: no merged manifest is made larger.
    """

    enabled: bool = True
    min_count: int = 100
    target_size_bytes: int = 8 * 1024 * 1024


@dataclass(slots=True)
class ManifestMerger:
    """Merges for one prepared batch; remembers its result, so that a retry reads and writes nothing again."""

    policy: MergePolicy
    snapshot_id: int
    _merged: tuple[frozenset[str], ManifestFile] | None = field(default=None)

    def merge(self, table: Table, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """The same files under fewer manifests; unchanged if it is too early or nothing can be merged."""
        if self._merged is None or not self._merged[0] <= {manifest.manifest_path for manifest in manifests}:
            group = choose(manifests, self.policy)
            if not group:
                return list(manifests)
            merged = self._try(table, group)
            if merged is None:
                return list(manifests)
            self._merged = (frozenset(manifest.manifest_path for manifest in group), merged)
        replaced, merged = self._merged
        kept = [manifest for manifest in manifests if manifest.manifest_path not in replaced]
        return [_fresh(merged), *kept]

    def _try(self, table: Table, group: Sequence[ManifestFile]) -> ManifestFile | None:
        try:
            return _write_merged(table, group, self.snapshot_id)
        except Exception as error:  # noqa: BLE001 # merging only saves time: what cannot be read can be carried over
            logger.warning("lakesink.manifests.unmerged count=%d error=%s", len(group), type(error).__name__)
            return None


def choose(manifests: Sequence[ManifestFile], policy: MergePolicy) -> list[ManifestFile]:
    """The manifests to merge now: the lowest tier of a spec that is full, up to the target size; maybe none."""
    if not policy.enabled:
        return []
    tiers: dict[tuple[int, int], list[ManifestFile]] = defaultdict(list)
    for manifest in manifests:
        if manifest.content == ManifestContent.DATA and not manifest.key_metadata:
            tiers[_tier(manifest, policy.min_count), manifest.partition_spec_id].append(manifest)
    for _, members in sorted(tiers.items()):
        group = list(_fitting(members, policy.target_size_bytes))
        if len(members) >= max(policy.min_count, 2) and len(group) > 1:
            return group
    return []


def _tier(manifest: ManifestFile, base: int) -> int:
    files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    tier = 0
    while files >= max(base, 2):
        files //= max(base, 2)
        tier += 1
    return tier


def _fitting(members: Sequence[ManifestFile], target_size_bytes: int) -> Iterator[ManifestFile]:
    """The oldest members that together stay below the target size."""
    size = 0
    for manifest in sorted(members, key=lambda member: member.sequence_number):
        size += manifest.manifest_length
        if size > target_size_bytes:
            return
        yield manifest


def _write_merged(table: Table, group: Sequence[ManifestFile], snapshot_id: int) -> ManifestFile | None:
    spec = table.specs().get(group[0].partition_spec_id)
    if spec is None or not _still_typed(table, spec):
        return None
    entries = [_as_existing(entry) for manifest in group for entry in manifest.fetch_manifest_entry(table.io)]
    if not entries:
        return None
    output = new_metadata_file(table, f"{snapshot_id}-{uuid.uuid4()}-merged.avro")
    length = write_entries(output, spec, table.schema(), entries, codec_of(table))
    partitions = [entry.data_file.partition for entry in entries]
    return ManifestFile.from_args(
        manifest_path=output.location,
        manifest_length=length,
        partition_spec_id=spec.spec_id,
        content=ManifestContent.DATA,
        sequence_number=UNASSIGNED_SEQUENCE,
        min_sequence_number=min(entry.sequence_number or 0 for entry in entries),
        added_snapshot_id=snapshot_id,
        added_files_count=0,
        existing_files_count=len(entries),
        deleted_files_count=0,
        added_rows_count=0,
        existing_rows_count=sum(entry.data_file.record_count for entry in entries),
        deleted_rows_count=0,
        partitions=partition_summaries(spec, table.schema(), partitions),
        key_metadata=None,
    )


def _still_typed(table: Table, spec: PartitionSpec) -> bool:
    """The present schema still has every column that the spec partitions by."""
    known = set(table.schema().field_ids)
    return all(part.source_id in known for part in spec.fields)


def _as_existing(entry: ManifestEntry) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.EXISTING,
        snapshot_id=entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def _fresh(manifest: ManifestFile) -> ManifestFile:
    """A copy that shares nothing: PyIceberg writes the sequence number into the object that it is given."""
    return ManifestFile(*manifest._data)  # noqa: SLF001 # Record offers no other way to copy its values
