"""Live files added again by a snapshot of their own, under the data sequence numbers that they had.

As Java's `rewrite_data_files` leaves a table: the number by which deletes apply to a file is older than the snapshot
that added it. Each file gets a manifest of its own.
"""

from collections.abc import Iterator
from io import BytesIO

from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.resolver import resolve_writer
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, TableRequirement, TableUpdate

from lakesink_catalog.commit.request import branch_at, snapshot_time_ms
from lakesink_catalog.manifests.lists import manifests_under, write_list
from lakesink_catalog.manifests.write import codec_of, entry_schema, header_metadata, new_metadata_file, write_entries


def added_again(
    table: Table, branch: str, snapshot_id: int, now_ms: int
) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """The request that does it.

    Args:
        table: As loaded.
        branch: Branch to move; it has a head.
        snapshot_id: Of the new snapshot.
        now_ms: Wall clock, milliseconds since the epoch.
    """
    head = table.snapshot_by_name(branch)
    assert head is not None
    number = getattr(table.metadata, "last_sequence_number", 0) + 1  # version 1 has none
    manifests = list(_manifests(table, manifests_under(table.io, head), snapshot_id))
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=number,
        timestamp_ms=snapshot_time_ms(table, now_ms),
        manifest_list=write_list(
            table, manifests, snapshot_id=snapshot_id, parent_id=head.snapshot_id, sequence_number=number
        ),
        summary=Summary(Operation.REPLACE),
        schema_id=table.metadata.current_schema_id,
    )
    fence = AssertRefSnapshotId(ref=branch, snapshot_id=head.snapshot_id)
    return (fence,), (AddSnapshotUpdate(snapshot=snapshot), branch_at(table, branch, snapshot_id))


def _manifests(table: Table, under: list[ManifestFile], snapshot_id: int) -> Iterator[ManifestFile]:
    for manifest in under:
        spec = table.specs()[manifest.partition_spec_id]
        for number, found in enumerate(manifest.fetch_manifest_entry(table.io)):
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=snapshot_id,
                sequence_number=found.sequence_number,
                file_sequence_number=None,
                data_file=found.data_file,
            )
            name = f"{snapshot_id}-{manifest.manifest_path.rpartition('/')[2]}-{number}.avro"
            output = new_metadata_file(table, name)
            header = header_metadata(spec, table.schema())
            length = write_entries(output, header, _encoded(entry, spec, table.schema()), codec_of(table))
            yield ManifestFile.from_args(
                manifest_path=output.location,
                manifest_length=length,
                partition_spec_id=spec.spec_id,
                content=manifest.content,
                sequence_number=-1,
                min_sequence_number=found.sequence_number,
                added_snapshot_id=snapshot_id,
                added_files_count=1,
                existing_files_count=0,
                deleted_files_count=0,
                added_rows_count=found.data_file.record_count,
                existing_rows_count=0,
                deleted_rows_count=0,
                partitions=manifest.partitions,
                key_metadata=None,
            )


def _encoded(entry: ManifestEntry, spec: PartitionSpec, schema: Schema) -> list[bytes]:
    written = entry_schema(spec, schema)
    out = BytesIO()
    resolve_writer(record_schema=written, file_schema=written).write(BinaryEncoder(out), entry)
    return [out.getvalue()]
