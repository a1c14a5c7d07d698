"""Delete files as engines with merge-on-read leave them; PyIceberg reads some of them and writes none."""

import uuid
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.typedef import Record

from lakesink.parquet.deletes import FILE_PATH
from testkit.builders import Lake
from testkit.maintenance import change, roll_back
from testkit.upserts import DeletesWriter


def delete_by_position(lake: Lake, data_file: str, positions: list[int], *, bounds: bool = False) -> None:
    """These rows of a data file are gone; with bounds, the manifest says that the delete file names no other."""
    rows = pa.table({"file_path": [data_file] * len(positions), "pos": pa.array(positions, pa.int64())})
    _commit(lake, rows, DataFileContent.POSITION_DELETES, None, {FILE_PATH: data_file.encode()} if bounds else {})


def delete_by_equality(lake: Lake, batch: int) -> None:
    """Rows of a batch are gone, whatever file they are in."""
    metadata = {b"PARQUET:field_id": b"1"}
    schema = pa.schema([pa.field("batch", pa.int64(), metadata=metadata)])
    _commit(lake, pa.table({"batch": [batch]}, schema=schema), DataFileContent.EQUALITY_DELETES, [1], {})


def _commit(
    lake: Lake, rows: pa.Table, content: DataFileContent, equality_ids: list[int] | None, bounds: Mapping[int, bytes]
) -> None:
    table, head, snapshot_id = lake.table(), lake.head(), uuid.uuid4().int >> 65
    manifest = _manifest(table, snapshot_id, _file(table, rows, content, equality_ids, bounds))
    sequence_number = (head.sequence_number or 0) + 1
    manifest_list = f"{table.location()}/metadata/snap-{snapshot_id}.avro"
    output = table.io.new_output(manifest_list)
    with write_manifest_list(2, output, snapshot_id, head.snapshot_id, sequence_number, "null") as writer:
        writer.add_manifests([*head.manifests(table.io), manifest])
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=sequence_number,
        timestamp_ms=head.timestamp_ms + 1,
        manifest_list=manifest_list,
        summary=Summary(Operation.DELETE),
        schema_id=table.schema().schema_id,
    )
    change(lake, AddSnapshotUpdate(snapshot=snapshot))
    roll_back(lake, snapshot_id)  # forward: the head moves to it


def _file(
    table: Table, rows: pa.Table, content: DataFileContent, equality_ids: list[int] | None, bounds: Mapping[int, bytes]
) -> DataFile:
    path = f"{table.location()}/data/deletes-{uuid.uuid4()}.parquet"
    local = Path(path.removeprefix("file://"))
    pq.write_table(rows, local)
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=local.stat().st_size,
        equality_ids=equality_ids,
        lower_bounds=bounds,
        upper_bounds=bounds,
    )
    file.spec_id = table.spec().spec_id
    return file


def _manifest(table: Table, snapshot_id: int, file: DataFile) -> ManifestFile:
    output = table.io.new_output(f"{table.location()}/metadata/{uuid.uuid4()}-deletes.avro")
    with DeletesWriter(table.spec(), table.schema(), output, snapshot_id, "null") as writer:
        writer.add_entry(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=snapshot_id,
                sequence_number=None,
                file_sequence_number=None,
                data_file=file,
            )
        )
    return writer.to_manifest_file()
