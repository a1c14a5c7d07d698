"""Writes manifests again: files that a snapshot adds, and an end to others.

The entries of removed files become DELETED, the others stay as they are. Entries of one spec and one layout go into one
manifest. A manifest that cannot be read exactly stays as it is, and with it the files that it lists.
"""

import json
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from operator import attrgetter

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table

from lakesink_catalog.manifests import entries as manifest_entries
from lakesink_catalog.manifests.avro import read_header
from lakesink_catalog.manifests.avro_values import Malformed
from lakesink_catalog.manifests.copying import AtOnce, check_counts, contents
from lakesink_catalog.manifests.encode import entry_encoder
from lakesink_catalog.manifests.lists import entries_of
from lakesink_catalog.manifests.live import LiveFile
from lakesink_catalog.manifests.partitions import Kind, kinds_of, promoted, schema_for, summaries
from lakesink_catalog.manifests.write import (
    UNASSIGNED_SEQUENCE,
    as_listed,
    avro_layout,
    codec_of,
    header_metadata,
    new_metadata_file,
    write_entries,
)
from lakesink_protocol.change import ContentFile
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.events import Listener, ManifestSetAside

FEW_ENTRIES = 100
"""A manifest of so few is always merged: to open it takes readers longer than to read its entries."""
MOST_ENTRIES = 10_000
"""Of one manifest: to rewrite so many takes about a tenth of a second."""
OWN_DELETES = "-deletes.avro"
"""How the name of a delete manifest ends that lakesink wrote."""
_CONTENTS = {ManifestContent.DATA: manifest_entries.DATA, ManifestContent.DELETES: manifest_entries.DELETES}
_ENDINGS = {ManifestContent.DATA: "-files.avro", ManifestContent.DELETES: OWN_DELETES}
_STATUSES = (manifest_entries.EXISTING, manifest_entries.ADDED, manifest_entries.DELETED)
_spec_id = attrgetter("spec_id")


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Manifests that a snapshot adds, all others of its parent, and the files whose entries ended."""

    written: tuple[ManifestFile, ...]
    kept: tuple[ManifestFile, ...]
    removed: tuple[LiveFile, ...]


@dataclass(slots=True)
class _Group:
    """Entries for one file, of one spec and layout (`digest`), instead of the parent's manifests at `paths`."""

    spec_id: int
    digest: str
    metadata: Mapping[str, bytes]
    kinds: Sequence[Kind]
    entries: list[manifest_entries.NewEntry]
    paths: set[str] = field(default_factory=set)

    @property
    def changes(self) -> bool:
        """False if it is one manifest as it was: it was opened to be merged, and nothing has its layout."""
        return len(self.paths) != 1 or any(entry.status != manifest_entries.EXISTING for entry in self.entries)


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a snapshot changes in the files of one content.

    Small delete manifests that lakesink wrote are merged in the same step, so that readers of the table open few of
    them. Each merges only with as many other entries, so that without a replacement an entry is rewritten only now and
    then. The older files of a manifest that cannot be read exactly stay: new delete files contain their positions.

    Attributes:
        added: New files; each delete file has the spec and the partition of the data file that it names.
        removed: Files whose entries end, as they are live in the parent.
    """

    content: ManifestContent
    added: Sequence[ContentFile]
    removed: Sequence[LiveFile]
    snapshot_id: int

    def write(
        self, table: Table, manifests: Sequence[ManifestFile], emit: Listener, at_once: AtOnce = map
    ) -> Rewritten:
        """Write the manifests, of all those of the parent. They are right only in a snapshot on that parent."""
        touched = {file.manifest_path for file in self.removed}
        chosen = (
            to_rewrite(manifests, touched, Counter(file.spec_id for file in self.added))
            if self.content is ManifestContent.DELETES
            else [one for one in manifests if one.manifest_path in touched]
        )
        opened = at_once(partial(self._open, table.io, emit), chosen) if chosen else ()
        groups = [group for group in self._groups(table, opened) if group.changes]
        written = [
            self._write_one(table, group, group.entries[start : start + MOST_ENTRIES])
            for group in groups
            for start in range(0, len(group.entries), MOST_ENTRIES)
        ]
        gone = frozenset[str]().union(*(group.paths for group in groups))
        ended = {entry.path for group in groups for entry in group.entries if entry.status == manifest_entries.DELETED}
        removed = tuple(file for file in self.removed if file.manifest_path in gone)
        assert {file.path for file in removed} == ended, "found in the parent"
        return Rewritten(tuple(written), tuple(one for one in manifests if one.manifest_path not in gone), removed)

    def _open(self, io: FileIO, emit: Listener, manifest: ManifestFile) -> _Group | None:
        """A manifest of the parent with its new entries; None if it must stay as it is."""
        try:
            data = contents(io, manifest)
            header = read_header(data)
            digest = manifest_entries.layout_digest(header.metadata, _CONTENTS[self.content])
            inherited = manifest_entries.Inherited(manifest.added_snapshot_id, manifest.sequence_number)
            removed = {file.path for file in self.removed if file.manifest_path == manifest.manifest_path}
            carried = manifest_entries.carry_over(data, header, inherited, removed, self.snapshot_id)
            entries = [entry for entry in carried if entry is not None]
            check_counts(manifest, len(entries), sum(entry.rows for entry in entries))
            kinds = manifest_entries.partition_kinds(header.schema)
        except Malformed as error:
            emit(ManifestSetAside(manifest.manifest_path, str(error)))
            return None
        metadata = {**header.metadata, "avro.schema": json.dumps(header.schema).encode()}
        return _Group(manifest.partition_spec_id, digest, metadata, kinds, entries, {manifest.manifest_path})

    def _groups(self, table: Table, opened: Iterable[_Group | None]) -> Iterable[_Group]:
        groups: dict[tuple[int, str], _Group] = {}
        by_spec = groupby(sorted(self.added, key=_spec_id), key=_spec_id)
        new = (self._new_group(table, table.specs()[spec_id], files) for spec_id, files in by_spec)
        for one in filter(None, chain(new, opened)):
            group = groups.setdefault((one.spec_id, one.digest), one)
            if group is not one:
                group.entries += one.entries
                group.paths |= one.paths
        return groups.values()

    def _new_group(self, table: Table, spec: PartitionSpec, files: Iterable[ContentFile]) -> _Group:
        schema, content = schema_for(spec, table.metadata), _CONTENTS[self.content]
        if schema is None:
            raise CatalogError.of("SCHEMA_UNSUPPORTED.old_spec", spec_id=spec.spec_id)
        kinds = kinds_of(spec, schema)
        encode = entry_encoder(avro_layout(spec, schema, content), self.snapshot_id)
        metadata, entries = header_metadata(spec, schema, content), []
        for file in files:
            partition = promoted(kinds, file.partition)
            encoded = encode(replace(file, partition=partition))
            entries.append(
                manifest_entries.NewEntry(manifest_entries.ADDED, encoded, file.record_count, partition, None)
            )
        return _Group(spec.spec_id, manifest_entries.layout_digest(metadata, content), metadata, kinds, entries)

    def _write_one(self, table: Table, group: _Group, entries: Sequence[manifest_entries.NewEntry]) -> ManifestFile:
        output = new_metadata_file(table, f"{self.snapshot_id}-{uuid.uuid4()}{_ENDINGS[self.content]}")
        length = write_entries(output, group.metadata, [entry.encoded for entry in entries], codec_of(table))
        rows = {status: [entry.rows for entry in entries if entry.status == status] for status in _STATUSES}
        known = [entry.sequence_number for entry in entries if entry.status == manifest_entries.EXISTING]
        return as_listed(
            output.location,
            length,
            {status: (len(each), sum(each)) for status, each in rows.items()},
            spec_id=group.spec_id,
            snapshot_id=self.snapshot_id,
            partitions=summaries(group.kinds, {entry.partition for entry in entries}),
            content=self.content,
            min_sequence_number=min((number for number in known if number is not None), default=UNASSIGNED_SEQUENCE),
        )


def to_rewrite(
    manifests: Iterable[ManifestFile], touched: Collection[str], adds: Mapping[int, int]
) -> list[ManifestFile]:
    """The delete manifests to write again: those that are touched, and small ones where files are added.

    `adds` has the number of new files by spec. Only manifests that lakesink named are merged: others mostly have other
    layouts.
    """
    of_deletes = [one for one in manifests if one.content == ManifestContent.DELETES]
    chosen = [one for one in of_deletes if one.manifest_path in touched]
    for spec_id, count in adds.items():
        gathered = count + sum(entries_of(one) for one in chosen if one.partition_spec_id == spec_id)
        own = [
            one for one in of_deletes if one.partition_spec_id == spec_id and one.manifest_path.endswith(OWN_DELETES)
        ]
        for one in sorted((one for one in own if one.manifest_path not in touched), key=entries_of):
            more = entries_of(one)
            if more > max(gathered, FEW_ENTRIES) or gathered + more > MOST_ENTRIES:
                break
            chosen.append(one)
            gathered += more
    return chosen
