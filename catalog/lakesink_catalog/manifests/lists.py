"""Manifest lists. Each commit writes one that differs from the last in a few entries.

Entries that are carried over are copied as bytes, and a process decodes an entry only once. Lists of another layout,
such as those of format version 1, are read by PyIceberg.
"""

import json
import uuid
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestFile,
    PartitionFieldSummary,
    read_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from lakesink_catalog.manifests.avro import container, each_value, parsed_schema, read_header
from lakesink_catalog.manifests.avro_skips import Skip, skipper
from lakesink_catalog.manifests.avro_values import Malformed, Read, encode_bytes, encode_long, reader
from lakesink_catalog.manifests.write import UNASSIGNED_SEQUENCE, codec_of, new_metadata_file
from lakesink_catalog.snapshots import snapshots_by_id
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.redact import redact

FORMAT_VERSION = 2
KNOWN_ENTRIES = 4096
"""Decoded entries that a process keeps: a table has some hundred manifests."""
_NULL, _PRESENT, _FALSE, _TRUE, _END = b"\x00", b"\x02", b"\x00", b"\x01", b"\x00"


class ListedManifest(ManifestFile):
    """An entry as it was read, with its bytes. It is shared, so nothing changes it."""

    __slots__ = ("encoded",)
    encoded: bytes


def manifests_under(io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
    """The manifests that a child of `snapshot` keeps: all that still reference live files."""
    found = () if snapshot is None else read_list(io, snapshot.manifest_list)
    return [manifest for manifest in found if manifest.has_added_files() or manifest.has_existing_files()]


def entries_of(manifest: ManifestFile) -> int:
    """All entries that the manifest list states. A copy reads them all; it leaves out those of deleted files."""
    counts = manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count
    return sum(count or 0 for count in counts)


def read_list(io: FileIO, location: str) -> Sequence[ManifestFile]:
    """The entries of a manifest list."""
    file = io.new_input(location)
    with file.open() as stream:
        data = stream.read()
    header = read_header(data)
    if not _is_ours(header.avro_schema):
        found = list(read_manifest_list(file))
        for manifest in found:
            # PyIceberg gives a manifest of a list of version 1, which states no content, a plain number as its content.
            manifest[3] = ManifestContent(manifest.content)
        return found
    return [decoded_entry(entry) for entry in each_value(data, header, _cut, "an entry of a manifest list")]


def write_list(
    table: Table, manifests: Iterable[ManifestFile], *, snapshot_id: int, parent_id: int | None, sequence_number: int
) -> str:
    """Write the manifest list of one commit attempt and return its location.

    A manifest without a sequence number gets that of the commit, whose snapshot must have added it.
    """
    parent = None if parent_id is None else snapshots_by_id(table.metadata).get(parent_id)
    entries = [
        manifest.encoded
        if isinstance(manifest, ListedManifest)
        else _encoded(manifest, snapshot_id, sequence_number, parent)
        for manifest in manifests
    ]
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence_number),
        "format-version": str(FORMAT_VERSION),
        "avro.schema": json.dumps(list_schema()),
    }
    headers = {name: value.encode() for name, value in metadata.items()}
    output = new_metadata_file(table, f"snap-{snapshot_id}-{uuid.uuid4()}.avro")
    with output.create(overwrite=True) as stream:
        stream.write(container(headers, codec_of(table), [entries] if entries else []))
    return output.location


@cache
def list_schema() -> Any:
    """The Avro schema of the lists that this module writes."""
    return AvroSchemaConversion().iceberg_to_avro(MANIFEST_LIST_FILE_SCHEMAS[FORMAT_VERSION], "manifest_file")


@cache
def _tools() -> tuple[Skip, Read]:
    """What skips an entry of our layout, and what decodes it."""
    return skipper(list_schema()).skip, reader(list_schema())


@lru_cache(maxsize=64)
def _is_ours(avro_schema: bytes) -> bool:
    """True if entries of this schema have the same bytes as those of ours: names and documentation may differ."""
    return bool(_layout(parsed_schema(avro_schema)) == _layout(list_schema()))


def _layout(schema: Any) -> Any:
    match schema:
        case {"type": "record", "fields": fields}:
            return [(field.get("field-id"), _layout(field["type"])) for field in fields]
        case {"type": "array", "items": items}:
            return "array", _layout(items)
        case {"type": str(inner)}:
            return inner
        case [*branches]:
            return [_layout(branch) for branch in branches]
    return schema


def _cut(block: bytes, at: int) -> tuple[bytes, int]:
    end = _tools()[0](block, at)
    return block[at:end], end


@lru_cache(maxsize=KNOWN_ENTRIES)
def decoded_entry(encoded: bytes) -> ListedManifest:
    """The entry in these bytes of our layout."""
    entry, _ = _tools()[1](encoded, 0)
    fields = {field.field_id: field.name for field in MANIFEST_LIST_FILE_SCHEMAS[FORMAT_VERSION].fields}
    named = {name: entry[field_id] for field_id, name in fields.items()}
    try:
        named["content"] = ManifestContent(named["content"])
    except ValueError as error:
        raise Malformed("a manifest of an unknown content") from error
    partitions = named["partitions"]
    if partitions is not None:
        named["partitions"] = [PartitionFieldSummary(*summary.values()) for summary in partitions]
    found = ListedManifest(*named.values())
    found.encoded = encoded
    return found


def _encoded(manifest: ManifestFile, snapshot_id: int, sequence_number: int, parent: Snapshot | None) -> bytes:
    numbers = manifest.sequence_number, manifest.min_sequence_number
    if UNASSIGNED_SEQUENCE in numbers and manifest.added_snapshot_id != snapshot_id:
        raise ValueError(f"a manifest of snapshot {manifest.added_snapshot_id} has no sequence number")
    counts = [
        getattr(manifest, f"{status}_{what}_count")
        for what in ("files", "rows")
        for status in ("added", "existing", "deleted")
    ]
    if None in counts or manifest.added_snapshot_id is None:
        path, of_list = redact(manifest.manifest_path), "unknown" if parent is None else redact(parent.manifest_list)
        raise CatalogError.of("MANIFEST_UNREADABLE.without_counts", path=path, of_list=of_list)  # a list of version 1
    found = [
        manifest.manifest_length,
        manifest.partition_spec_id,
        manifest.content.value,
        *(sequence_number if number == UNASSIGNED_SEQUENCE else number for number in numbers),
        manifest.added_snapshot_id,
        *(count or 0 for count in counts),
    ]
    parts = [encode_bytes(manifest.manifest_path.encode()), *map(encode_long, found), _summaries(manifest.partitions)]
    return b"".join((*parts, _optional(manifest.key_metadata)))


def _summaries(partitions: Sequence[PartitionFieldSummary] | None) -> bytes:
    if partitions is None:
        return _NULL
    items = b""
    for one in partitions:
        has_nan = _NULL if one.contains_nan is None else _PRESENT + _flag(one.contains_nan)
        items += _flag(one.contains_null) + has_nan + _optional(one.lower_bound) + _optional(one.upper_bound)
    return _PRESENT + (encode_long(len(partitions)) + items if partitions else b"") + _END


def _flag(value: bool) -> bytes:  # noqa: FBT001 - the value itself
    return _TRUE if value else _FALSE


def _optional(value: bytes | None) -> bytes:
    return _NULL if value is None else _PRESENT + encode_bytes(value)
