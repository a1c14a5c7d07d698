"""Writes delete manifests: new files of position deletes, and an end to those that they replace.

A manifest with a replaced file is written again: the replaced entries become DELETED, the others stay as they are.
Small delete manifests that lakesink wrote are merged in the same step, so that readers of the table open few of them.
Each merges only with as many other entries, so that without a replacement an entry is rewritten only now and then.

A manifest that cannot be read exactly stays as it is, and with it the older files that it lists. That is only slower to
read: the new files contain their positions.
"""

import json
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import attrgetter

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from lakesink_catalog.manifests.avro import Header, read_header
from lakesink_catalog.manifests.avro_values import Malformed
from lakesink_catalog.manifests.copying import AtOnce, check_counts, check_size, contents, entries_of
from lakesink_catalog.manifests.delete_entries import NewEntry, rewritten_entries
from lakesink_catalog.manifests.encode import entry_encoder
from lakesink_catalog.manifests.entries import (
    ADDED,
    DELETED,
    DELETES,
    EXISTING,
    Inherited,
    layout_digest,
    partition_kinds,
)
from lakesink_catalog.manifests.live import LiveFile
from lakesink_catalog.manifests.partitions import Kind, field_summaries, kinds_of, promoted, summaries
from lakesink_catalog.manifests.write import (
    UNASSIGNED_SEQUENCE,
    avro_layout,
    codec_of,
    header_metadata,
    new_metadata_file,
    write_entries,
)
from lakesink_protocol.catalogue import DataState
from lakesink_protocol.change import ContentFile
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.events import Listener, ManifestSetAside

_spec_id = attrgetter("spec_id")

MOST_ENTRIES = 10_000
"""Of one delete manifest: to rewrite so many takes about a tenth of a second."""
FEW_ENTRIES = 100
"""A manifest of so few is always merged: to open it takes readers longer than to read its entries."""
OWN = "-deletes.avro"
"""How the name of a delete manifest ends that lakesink wrote."""
_STATUSES = (EXISTING, ADDED, DELETED)


@dataclass(frozen=True, slots=True)
class DeleteManifests:
    """The delete manifests of a new snapshot.

    Attributes:
        written: Those that the snapshot adds.
        kept: All other manifests of its parent, those of data files too.
        removed: The replaced files whose entries ended.
    """

    written: tuple[ManifestFile, ...]
    kept: Sequence[ManifestFile]
    removed: tuple[LiveFile, ...] = ()


@dataclass(frozen=True, slots=True)
class _Opened:
    """A delete manifest of the parent, to be written again."""

    manifest: ManifestFile
    header: Header
    digest: str
    entries: tuple[NewEntry, ...]


@dataclass(slots=True)
class _Group:
    """Entries that fit into one file: of one spec and one layout. `metadata` is for its header."""

    spec_id: int
    metadata: Mapping[str, bytes]
    kinds: Sequence[Kind]
    entries: list[NewEntry] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)

    def take(self, opened: _Opened) -> None:
        """Add the entries of a manifest that is written again."""
        self.entries += opened.entries
        self.paths.add(opened.manifest.manifest_path)

    @property
    def changes(self) -> bool:
        """False if it is one manifest as it was: it was opened to be merged, and nothing has its layout."""
        return len(self.paths) != 1 or any(entry.status != EXISTING for entry in self.entries)


@dataclass(frozen=True, slots=True)
class DeleteChange:
    """What a snapshot changes in the files of position deletes.

    Attributes:
        manifests: All manifests of its parent.
        added: New files; each has the spec and the partition of the data file that it names.
        replaced: Older files whose positions the new ones contain, as they are live in the parent.
    """

    manifests: Sequence[ManifestFile]
    added: Sequence[ContentFile]
    replaced: Sequence[LiveFile]
    snapshot_id: int

    def write(self, table: Table, emit: Listener, at_once: AtOnce = map) -> DeleteManifests:
        """Write the manifests. They are right only in a snapshot on that parent."""
        touched = {file.manifest_path for file in self.replaced}
        chosen = to_rewrite(self.manifests, touched, Counter(file.spec_id for file in self.added))
        opened = list(at_once(partial(self._open, table.io, emit), chosen)) if chosen else []
        groups = [group for group in self._groups(table, opened) if group.changes]
        written = [manifest for group in groups for manifest in _write(table, group, self.snapshot_id)]
        gone = frozenset[str]().union(*(group.paths for group in groups))
        ended = {entry.path for group in groups for entry in group.entries if entry.status == DELETED}
        removed = tuple(file for file in self.replaced if file.manifest_path in gone)
        assert {file.path for file in removed} == ended, "located on the parent"
        kept = tuple(one for one in self.manifests if one.manifest_path not in gone)
        return DeleteManifests(tuple(written), kept, removed)

    def _open(self, io: FileIO, emit: Listener, manifest: ManifestFile) -> _Opened | None:
        """A manifest with its new entries; None if it must stay as it is."""
        try:
            data = contents(io, manifest)
            check_size(manifest, len(data))
            header = read_header(data)
            digest = layout_digest(header, DELETES)
            inherited = Inherited(manifest.added_snapshot_id, manifest.sequence_number)
            replaced = {file.path for file in self.replaced if file.manifest_path == manifest.manifest_path}
            entries = tuple(rewritten_entries(data, header, inherited, replaced, self.snapshot_id))
            check_counts(manifest, len(entries), sum(entry.rows for entry in entries))
        except Malformed as error:
            emit(ManifestSetAside(manifest.manifest_path, str(error)))
            return None
        return _Opened(manifest, header, digest, entries)

    def _groups(self, table: Table, opened: Iterable[_Opened | None]) -> list[_Group]:
        groups: dict[tuple[int, str], _Group] = {}
        for spec_id, files in groupby(sorted(self.added, key=_spec_id), key=_spec_id):
            group = _new_group(table, table.specs()[spec_id], files, self.snapshot_id)
            groups[spec_id, layout_digest(Header(group.metadata, b"", 0), DELETES)] = group
        for one in opened:
            if one is not None:
                key = one.manifest.partition_spec_id, one.digest
                groups.setdefault(key, _as_it_is(one)).take(one)
        return list(groups.values())


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
        own = [one for one in of_deletes if one.partition_spec_id == spec_id and one.manifest_path.endswith(OWN)]
        for one in sorted((one for one in own if one.manifest_path not in touched), key=entries_of):
            more = entries_of(one)
            if more > max(gathered, FEW_ENTRIES) or gathered + more > MOST_ENTRIES:
                break
            chosen.append(one)
            gathered += more
    return chosen


def _new_group(table: Table, spec: PartitionSpec, files: Iterable[ContentFile], snapshot_id: int) -> _Group:
    schema = _schema_of(table, spec)
    kinds = kinds_of(spec, schema)
    encode = entry_encoder(avro_layout(spec, schema, DELETES), snapshot_id)
    group = _Group(spec.spec_id, header_metadata(spec, schema, DELETES), kinds)
    for file in files:
        partition = promoted(kinds, file.partition)
        encoded = encode(replace(file, partition=partition))
        group.entries.append(NewEntry(ADDED, file.path, encoded, file.record_count, partition, None))
    return group


def _as_it_is(one: _Opened) -> _Group:
    metadata = {**one.header.metadata, "avro.schema": json.dumps(one.header.schema).encode()}
    return _Group(one.manifest.partition_spec_id, metadata, partition_kinds(one.header.schema))


def _schema_of(table: Table, spec: PartitionSpec) -> Schema:
    """The newest schema with all source columns of a spec: a column of an old spec may have been dropped."""
    sources = {part.source_id for part in spec.fields}
    older = sorted(table.metadata.schemas, key=lambda schema: -schema.schema_id)
    for schema in (table.schema(), *older):
        if all(schema.find_column_name(source) is not None for source in sources):
            return schema
    raise CatalogError(
        "SCHEMA_UNSUPPORTED",
        f"No schema of the table has all columns of its partition spec {spec.spec_id}.",
        data=DataState.NOT_IN,
        action="Rewrite the files of that spec (Spark SQL: CALL system.rewrite_data_files), then start again.",
    )


def _write(table: Table, group: _Group, snapshot_id: int) -> Iterator[ManifestFile]:
    for start in range(0, len(group.entries), MOST_ENTRIES):
        yield _write_one(table, group, group.entries[start : start + MOST_ENTRIES], snapshot_id)


def _write_one(table: Table, group: _Group, entries: Sequence[NewEntry], snapshot_id: int) -> ManifestFile:
    output = new_metadata_file(table, f"{snapshot_id}-{uuid.uuid4()}{OWN}")
    length = write_entries(output, group.metadata, [entry.encoded for entry in entries], codec_of(table))
    files = Counter(entry.status for entry in entries)
    rows = {status: sum(entry.rows for entry in entries if entry.status == status) for status in _STATUSES}
    known = [entry.sequence_number for entry in entries if entry.status == EXISTING]
    return ManifestFile.from_args(
        manifest_path=output.location,
        manifest_length=length,
        partition_spec_id=group.spec_id,
        content=ManifestContent.DELETES,
        sequence_number=UNASSIGNED_SEQUENCE,
        min_sequence_number=min((number for number in known if number is not None), default=UNASSIGNED_SEQUENCE),
        added_snapshot_id=snapshot_id,
        added_files_count=files[ADDED],
        existing_files_count=files[EXISTING],
        deleted_files_count=files[DELETED],
        added_rows_count=rows[ADDED],
        existing_rows_count=rows[EXISTING],
        deleted_rows_count=rows[DELETED],
        partitions=field_summaries(summaries(group.kinds, {entry.partition for entry in entries})),
        key_metadata=None,
    )
