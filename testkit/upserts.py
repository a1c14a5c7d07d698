"""Batches of changes by key in a real table, and a dictionary that says what must live in it. No Spark.

The snapshots are written here, by PyIceberg alone: what reads them in a test knows nothing of the sink that writes
such snapshots.
"""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField, StringType

from lakesink_catalog.commit.request import branch_at, tag_at
from lakesink_protocol.identity import SinkKey, stream_batch
from lakesink_protocol.ledger import Mark, next_entry
from lakesink_protocol.row_changes import MODE, ChangeCounts, Mode
from testkit.builders import Lake

KEYED = Schema(
    NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()), identifier_field_ids=[1]
)
_ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
_PATH_ID, _POSITION_ID = 2147483546, 2147483545
_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={b"PARQUET:field_id": str(_PATH_ID).encode()}),
        pa.field("pos", pa.int64(), nullable=False, metadata={b"PARQUET:field_id": str(_POSITION_ID).encode()}),
    ]
)
_TOTALS = (
    "total-data-files",
    "total-records",
    "total-files-size",
    "total-delete-files",
    "total-position-deletes",
    "total-equality-deletes",
)
Place = tuple[str, int]


class DeletesWriter(ManifestWriterV2):
    """PyIceberg's writer, for files of deletes."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


@dataclass(slots=True)
class Upserts:
    """One sink of a table with a key.

    Attributes:
        rows: What lives in the table: name by id.
    """

    lake: Lake
    sink_id: str = "keyed"
    query: str = "query-keyed"
    start_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000 - 3_600_000)
    rows: dict[int, str] = field(default_factory=dict)
    _places: dict[int, Place] = field(default_factory=dict)
    _files: dict[str, DataFile] = field(default_factory=dict)
    _removed: dict[str, list[int]] = field(default_factory=dict)
    _deletes: dict[str, ManifestEntry] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> "Upserts":
        return cls(Lake.make(folder, schema=KEYED, spec=spec))

    @property
    def key(self) -> SinkKey:
        return SinkKey(self.sink_id)

    def run(
        self,
        batch_id: int,
        upserts: Mapping[int, str],
        deletes: Sequence[int] = (),
        *,
        late: Sequence[int] = (),
        superseded: Sequence[int] = (),
        said: Mapping[str, str] | None = None,
    ) -> int:
        """Commit a batch; returns its snapshot id.

        Args:
            batch_id: The next batch.
            upserts: Name by id, in the order of the rows.
            deletes: Keys to delete.
            late: Those of the upserts that have no effect, and are written and removed.
            superseded: Keys that another task wrote too.
            said: Properties of the summary that are not as they must be.
        """
        table = self.lake.table()
        before = self._totals(table)
        counts = self._counts(upserts, deletes, late, superseded)
        new = self._write(table, upserts, superseded)
        touched = self._apply(new, upserts, deletes, late)
        fresh = {path: self._write_deletes(table, path) for path in sorted(touched)}
        stated = _stated(new, fresh, [self._deletes[path] for path in touched if path in self._deletes], before)
        operation = Operation.OVERWRITE if fresh else Operation.APPEND
        summary = Summary(operation, **stated | {MODE: Mode.CHANGES} | counts.to_summary() | dict(said or {}))
        return self._commit(table, batch_id, new, fresh, summary)

    def look_again(self) -> None:
        """Find the rows where another writer put them."""
        tasks = list(self.lake.table().scan().plan_files())
        assert not any(task.delete_files for task in tasks)
        self._files = {task.file.file_path: task.file for task in tasks}
        self._removed = {}
        self._places = {key: (path, place) for path, file in self._files.items() for key, place in _rows_of(file)}

    def live(self) -> dict[int, str]:
        """What PyIceberg reads."""
        rows = self.lake.table().scan().to_arrow().to_pylist()
        found = {row["id"]: row["name"] for row in rows}
        assert len(found) == len(rows)
        return found

    def _counts(
        self, upserts: Mapping[int, str], deletes: Sequence[int], late: Sequence[int], superseded: Sequence[int]
    ) -> ChangeCounts:
        applied = upserts.keys() - set(late)
        updated = applied & self.rows.keys()
        deleted = set(deletes) & self.rows.keys()
        return ChangeCounts(
            upserts=len(upserts),
            deletes=len(deletes),
            superseded=len(superseded),
            inserted=len(applied) - len(updated),
            updated=len(updated),
            deleted=len(deleted),
            late_upserts=len(late),
            absent=len(deletes) - len(deleted),
        )

    def _write(self, table: Table, upserts: Mapping[int, str], superseded: Sequence[int]) -> list[DataFile]:
        """The rows of two tasks: superseded ones first, in files of their own."""
        tasks = [dict.fromkeys(superseded, "superseded"), upserts]
        frames = [pa.table([list(rows), list(rows.values())], schema=_ROWS) for rows in tasks if rows]
        return [
            file
            for frame in frames
            for file in _dataframe_to_data_files(table.metadata, frame, table.io, write_uuid=uuid.uuid4())
        ]

    def _apply(
        self, new: Sequence[DataFile], upserts: Mapping[int, str], deletes: Sequence[int], late: Sequence[int]
    ) -> set[str]:
        """Note what lives where; returns the data files that lost rows."""
        places = [(key, (file.file_path, position)) for file in new for key, position in _rows_of(file)]
        self._files |= {file.file_path: file for file in new}
        kept = {key: place for key, place in places if key not in late}
        gone = [self._places.pop(key) for key in {*kept, *deletes} if key in self._places]
        gone += [place for key, place in places if kept.get(key) != place]
        for path, position in gone:
            self._removed.setdefault(path, []).append(position)
        self._places |= kept
        for key in deletes:
            self.rows.pop(key, None)
        self.rows |= {key: name for key, name in upserts.items() if key not in late}
        return {path for path, _ in gone}

    def _write_deletes(self, table: Table, path: str) -> DataFile:
        positions = sorted(self._removed[path])
        location = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
        file = local(location)
        pq.write_table(pa.table([[path] * len(positions), positions], schema=_DELETES), file)
        bounds = {_PATH_ID: path.encode()}
        return _data_file(
            self._files[path],
            table.spec().spec_id,
            content=DataFileContent.POSITION_DELETES,
            file_path=location,
            record_count=len(positions),
            file_size_in_bytes=file.stat().st_size,
            lower_bounds=bounds,
            upper_bounds=bounds,
        )

    def _commit(
        self, table: Table, batch_id: int, new: Sequence[DataFile], fresh: Mapping[str, DataFile], summary: Summary
    ) -> int:
        head, snapshot_id = table.current_snapshot(), uuid.uuid4().int >> 65
        number = 1 + max((one.sequence_number or 0 for one in table.metadata.snapshots), default=0)
        batch = stream_batch(batch_id, self.query, start=[batch_id], end=[batch_id + 1])
        entry = next_entry(
            batch, snapshot_id=snapshot_id, sequence_number=number, table_uuid=str(table.metadata.table_uuid)
        )
        mark = Mark(self.key, batch_id, batch.query_id, batch.fingerprint, batch.end, "committed", "", batch_id)
        older = [one for one in head.manifests(table.io) if one.content is ManifestContent.DATA] if head else []
        manifests = [*self._data_manifest(table, snapshot_id, new), *older]
        manifests += self._delete_manifest(table, snapshot_id, number, fresh)
        location = f"{table.location()}/metadata/snap-{snapshot_id}.avro"
        parent = head.snapshot_id if head else None
        with write_manifest_list(2, table.io.new_output(location), snapshot_id, parent, number, "deflate") as writer:
            writer.add_manifests(manifests)
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent,
            sequence_number=number,
            timestamp_ms=(head.timestamp_ms if head else self.start_ms) + 1000,
            manifest_list=location,
            summary=Summary(summary.operation, **summary.additional_properties | mark.to_summary()),
            schema_id=table.schema().schema_id,
        )
        updates = (
            AddSnapshotUpdate(snapshot=snapshot),
            branch_at(table, "main", snapshot_id),
            tag_at(self.key.ledger_tag, snapshot_id, None),
            SetPropertiesUpdate(updates={self.key.ledger_property: entry.to_json()}),
        )
        self.lake.catalog.commit_table(table, (), updates)
        return snapshot_id

    def _data_manifest(self, table: Table, snapshot_id: int, new: Sequence[DataFile]) -> Iterator[ManifestFile]:
        if new:
            output = table.io.new_output(f"{table.location()}/metadata/{uuid.uuid4()}.avro")
            with write_manifest(2, table.spec(), table.schema(), output, snapshot_id, "deflate") as writer:
                for file in new:
                    writer.add_entry(_entry(ManifestEntryStatus.ADDED, snapshot_id, file))
            yield writer.to_manifest_file()

    def _delete_manifest(
        self, table: Table, snapshot_id: int, number: int, fresh: Mapping[str, DataFile]
    ) -> Iterator[ManifestFile]:
        """All delete files of the table in one manifest; those that are replaced end with this snapshot."""
        kept = {path: entry for path, entry in self._deletes.items() if path not in fresh}
        if fresh or kept:
            output = table.io.new_output(f"{table.location()}/metadata/{uuid.uuid4()}-deletes.avro")
            with DeletesWriter(table.spec(), table.schema(), output, snapshot_id, "deflate") as writer:
                for entry in kept.values():
                    writer.existing(entry)
                for path in fresh.keys() & self._deletes.keys():
                    writer.delete(self._deletes[path])
                for file in fresh.values():
                    writer.add_entry(_entry(ManifestEntryStatus.ADDED, snapshot_id, file))
            yield writer.to_manifest_file()
        self._deletes = kept | {
            path: _entry(ManifestEntryStatus.ADDED, snapshot_id, file, number) for path, file in fresh.items()
        }

    @staticmethod
    def _totals(table: Table) -> Mapping[str, Any]:
        head = table.current_snapshot()
        if head is None or head.summary is None:
            return dict.fromkeys(_TOTALS, "0")
        return head.summary.additional_properties


def _stated(
    new: Sequence[DataFile], fresh: Mapping[str, DataFile], replaced: Sequence[ManifestEntry], before: Mapping[str, Any]
) -> dict[str, str]:
    """The properties of Iceberg's own names."""
    old = [entry.data_file for entry in replaced]
    changes = {
        "data-files": (len(new), 0),
        "records": (sum(file.record_count for file in new), 0),
        "files-size": (_bytes([*new, *fresh.values()]), _bytes(old)),
        "delete-files": (len(fresh), len(old)),
        "position-deletes": (_rows(fresh.values()), _rows(old)),
        "equality-deletes": (0, 0),
    }
    found = {f"added-{name}": added for name, (added, _) in changes.items() if added}
    found |= {f"removed-{name}": removed for name, (_, removed) in changes.items() if removed}
    found |= {
        f"total-{name}": int(before[f"total-{name}"]) + added - removed
        for name, (added, removed) in changes.items()
        if f"total-{name}" in before
    }
    return {name: str(number) for name, number in found.items()}


def _bytes(files: Sequence[DataFile]) -> int:
    return sum(file.file_size_in_bytes for file in files)


def _rows(files: Any) -> int:
    return sum(file.record_count for file in files)


def _data_file(like: DataFile, spec_id: int, **fields: Any) -> DataFile:
    file = DataFile.from_args(file_format=FileFormat.PARQUET, partition=like.partition, **fields)
    file.spec_id = spec_id
    return file


def _entry(status: ManifestEntryStatus, snapshot_id: int, file: DataFile, number: int | None = None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status, snapshot_id=snapshot_id, sequence_number=number, file_sequence_number=number, data_file=file
    )


def _rows_of(file: DataFile) -> Iterator[tuple[int, int]]:
    keys = pq.read_table(local(file.file_path), columns=["id"]).column("id").to_pylist()
    return ((key, position) for position, key in enumerate(keys))


def local(location: str) -> Path:
    return Path(urlsplit(location).path)
