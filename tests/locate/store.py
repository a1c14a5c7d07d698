"""A real table with files of position deletes, in PyIceberg's manifests; each commit states all live files."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, PrimitiveType, StringType

from lakesink.keys.key_columns import KeyColumns, key_columns
from lakesink.sinks.iceberg.keyed_changes import Locator
from lakesink.sinks.iceberg.rows_on_head import LocateSettings
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.commit.table_change import Located
from lakesink_protocol.change import Content, ContentFile
from lakesink_protocol.row_changes import Mode
from lakesink_protocol.row_changes import Operation as Change
from testkit.tasks import plan_for, write
from testkit.upserts import DeletesWriter
from tests.locate.builders import write_keys

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "tag", StringType(), required=True),
    NestedField(3, "at", LongType()),
    NestedField(4, "part", LongType()),
    NestedField(5, "value", StringType()),
)
Key = tuple[int, str]
Row = tuple[int, str, int | None, int, str]
"""The columns of the table."""


@dataclass(frozen=True)
class RowChange:
    """One change: the row, of which a delete needs the key and the sequence only, and the source's position."""

    row: Row
    operation: Change = Change.UPSERT
    place: int | None = None
    offset: int | None = None

    @property
    def key(self) -> Key:
        return self.row[:2]


@dataclass(frozen=True)
class Prepared:
    """The changes of a batch after its tasks, and its data files."""

    changes: PreparedChanges
    files: tuple[ContentFile, ...]


@dataclass
class Store:
    """The table, and what its newest snapshot has: each content file with its sequence number."""

    table: Table
    folder: Path
    ordered: bool = True
    live: list[tuple[ContentFile, int]] = field(default_factory=list)
    batches: int = 0

    @property
    def head(self) -> int | None:
        snapshot = self.table.current_snapshot()
        return None if snapshot is None else snapshot.snapshot_id

    @property
    def columns(self) -> KeyColumns:
        return key_columns(self.table.schema().model_dump_json(), (1, 2), (3,) if self.ordered else ())

    def prepare(self, *tasks: Sequence[RowChange]) -> Prepared:
        """What the tasks of a batch write; each has at most one change of a key."""
        self.batches += 1
        new, keys = list[ContentFile](), []
        for task, changes in enumerate(tasks):
            rows = [change.row for change in changes if change.operation is not Change.DELETE]
            new += self.write(rows, task)
            if changes:
                keys.append(write_keys(self.folder, self._keys(changes), task))
        sequence = (3,) if self.ordered else ()
        return Prepared(PreparedChanges((1, 2), sequence, tuple(keys), 0, Mode.CHANGES), tuple(new))

    def write(self, rows: Sequence[Row], task: int = 0) -> list[ContentFile]:
        """Data files of rows."""
        if not rows:
            return []
        schema = self.table.schema().as_arrow()
        batch = pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
        location = f"{self.table.location()}/data"
        plan = plan_for(self.table.schema(), location, self.table.spec(), file_stem=f"s-{self.batches}")
        return list(write(plan, [batch], task).files)

    def locator(self, prepared: Prepared, **settings: Any) -> Locator:
        chosen = LocateSettings(folder=str(self.folder / "cache"), **settings)
        return Locator(prepared.changes, lambda _: prepared.files, f"s-{self.batches}", settings=chosen)

    def commit(self, prepared: Prepared, located: Located) -> None:
        """Commit the batch as the design says: rows and deletes in one snapshot."""
        assert located.head == self.head
        gone = {file.path for file in located.replaced}
        assert gone <= {file.path for file, _ in self.live}
        self.publish([*prepared.files, *located.deletes], gone)

    def publish(self, added: Sequence[ContentFile], removed: set[str] | frozenset[str] = frozenset()) -> None:
        """A snapshot with these files more, and those less."""
        head = self.table.current_snapshot()
        number = 1 + ((head.sequence_number or 0) if head else 0)
        kept = [one for one in self.live if one[0].path not in removed]
        self.live = [*kept, *((file, number) for file in added)]
        self._commit(number)

    def rows(self) -> list[Row]:
        """All live rows, read by PyIceberg."""
        names = [field.name for field in self.table.schema().fields]
        return [tuple(row[name] for name in names) for row in self.table.scan().to_arrow().to_pylist()]

    def data(self) -> list[ContentFile]:
        return [file for file, _ in self.live if file.content is Content.DATA]

    def deletes(self) -> list[ContentFile]:
        return [file for file, _ in self.live if file.content is Content.POSITION_DELETES]

    def compact(self) -> None:
        """Another program rewrites all live rows into new files."""
        rows = self.rows()
        self.publish(self.write(rows), {file.path for file, _ in self.live})

    def _keys(self, changes: Sequence[RowChange]) -> pa.Table:
        columns = self.columns
        values = [[change.row[at] for change in changes] for at in (0, 1, *([2] if self.ordered else []))]
        values += [[int(change.operation) for change in changes]]
        values += [[change.place for change in changes], [change.offset for change in changes]]
        kinds = [column.arrow for column in columns.all] + [pa.int8(), pa.int64(), pa.int64()]
        names = [column.alias for column in columns.all] + ["op", "place", "offset"]
        return pa.table([pa.array(one, kind) for one, kind in zip(values, kinds, strict=True)], names)

    def _commit(self, number: int) -> None:
        table, snapshot_id = self.table, uuid.uuid4().int >> 65
        manifests = [
            self._manifest(content, spec_id, number, snapshot_id)
            for content in Content
            for spec_id in {file.spec_id for file, _ in self.live if file.content is content}
        ]
        location = f"{table.location()}/metadata/snap-{snapshot_id}.avro"
        output = table.io.new_output(location)
        with write_manifest_list(2, output, snapshot_id, self.head, number, "null") as writer:
            writer.add_manifests(manifests)
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=self.head,
            sequence_number=number,
            timestamp_ms=table.metadata.last_updated_ms + 1,
            manifest_list=location,
            summary=Summary(Operation.OVERWRITE),
            schema_id=table.schema().schema_id,
        )
        main = SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id})
        table.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=snapshot), main))
        table.refresh()

    def _manifest(self, content: Content, spec_id: int, number: int, snapshot_id: int) -> ManifestFile:
        kind = ManifestWriterV2 if content is Content.DATA else DeletesWriter
        table = self.table
        output = table.io.new_output(f"{table.location()}/metadata/{uuid.uuid4()}.avro")
        with kind(table.specs()[spec_id], table.schema(), output, snapshot_id, "null") as writer:
            for file, sequence in self.live:
                if file.content is content and file.spec_id == spec_id:
                    status = ManifestEntryStatus.ADDED if sequence == number else ManifestEntryStatus.EXISTING
                    writer.add_entry(
                        ManifestEntry.from_args(
                            status=status,
                            snapshot_id=snapshot_id,
                            sequence_number=sequence,
                            file_sequence_number=sequence,
                            data_file=self._data_file(file),
                        )
                    )
        return writer.to_manifest_file()

    def _data_file(self, file: ContentFile) -> DataFile:
        spec = self.table.specs()[file.spec_id]
        kinds = [field.field_type for field in spec.partition_type(self.table.schema()).fields]
        values = [
            None if value is None or not isinstance(kind, PrimitiveType) else from_bytes(kind, value)
            for kind, value in zip(kinds, file.partition, strict=True)
        ]
        found = DataFile.from_args(
            content=DataFileContent(file.content.value),
            file_path=file.path,
            file_format=FileFormat.PARQUET,
            partition=Record(*values),
            record_count=file.record_count,
            file_size_in_bytes=file.file_size_bytes,
            lower_bounds=dict(file.lower_bounds),
            upper_bounds=dict(file.upper_bounds),
        )
        found.spec_id = file.spec_id
        return found


def without_name(file: ContentFile) -> ContentFile:
    """A delete file of another writer: its entry does not name a data file, and has no bounds."""
    return replace(file, referenced_data_file="", lower_bounds={}, upper_bounds={})
