"""Whether a prepared record tells the truth: what its manifests hold, read anew, is what it says they hold.

A record and its manifests lie where others may write. A manifest of the right size can still list a file from
elsewhere, one of another batch, or one twice; so before a batch is committed from a record, every entry is looked at.
"""

from collections.abc import Iterator, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table.metadata import TableMetadata

from lakesink_catalog.manifests import ManifestRecord, PartitionSummary, summaries_of
from lakesink_catalog.prepared import PreparedBatch


def holds_what_it_says(prepared: PreparedBatch, metadata: TableMetadata, io: FileIO) -> bool:
    """True if the manifests add exactly the record's files, with its sizes, rows and partition bounds.

    Args:
        prepared: From a record; its schema and specs are the table's.
        metadata: Of the table.
        io: The table's files.

    Raises:
        OSError: The storage failed otherwise than by saying that a file is not there.
    """
    try:
        found = list(_files(prepared, metadata, io))
    except FileNotFoundError:
        return False
    except OSError:
        raise
    except Exception:  # noqa: BLE001 - PyIceberg's decoder raises whatever the bytes lead to
        return False
    return sorted(found) == sorted(prepared.files)


def _files(prepared: PreparedBatch, metadata: TableMetadata, io: FileIO) -> Iterator[tuple[str, int]]:
    for manifest in prepared.manifests:
        entries = manifest.to_manifest_file().fetch_manifest_entry(io, discard_deleted=False)
        if not all(_adds(entry, prepared.snapshot_id) for entry in entries):
            raise ValueError("an entry that this batch does not add")
        if sum(entry.data_file.record_count for entry in entries) != manifest.rows:
            raise ValueError("other rows than the record says")
        if _summaries(manifest, entries, prepared.schema_id, metadata) != manifest.partitions:
            raise ValueError("other partitions than the record says")
        yield from ((entry.data_file.file_path, entry.data_file.file_size_in_bytes) for entry in entries)


def _adds(entry: ManifestEntry, snapshot_id: int) -> bool:
    is_data = entry.data_file.content == DataFileContent.DATA and entry.data_file.record_count > 0
    return is_data and entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot_id


def _summaries(
    manifest: ManifestRecord, entries: Sequence[ManifestEntry], schema_id: int, metadata: TableMetadata
) -> tuple[PartitionSummary, ...]:
    spec = next(spec for spec in metadata.partition_specs if spec.spec_id == manifest.spec_id)
    schema = next(schema for schema in metadata.schemas if schema.schema_id == schema_id)
    return summaries_of(spec, schema, entries)
