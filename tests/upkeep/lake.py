"""Tables of real files for maintenance, written by PyIceberg, and what other writers do to them. No Spark."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap64

from lakesink.parquet.deletes import FILE_PATH, DeletedRows, write_deletes
from lakesink.sinks.iceberg.upkeep.maintenance import Maintenance
from lakesink.sinks.iceberg.upkeep.policy import Policy
from lakesink_catalog.commit.change_commit import ChangeCommit
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.request import branch_at
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.manifests.live import LiveFiles
from lakesink_catalog.manifests.live_reading import LiveMemory, live_files
from lakesink_protocol import events
from lakesink_protocol.change import ContentFile
from testkit.builders import Chance, Lake
from testkit.tasks import exactly, local
from testkit.upserts import DeletesWriter

NUMBERS = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "part", StringType()), NestedField(3, "v", StringType())
)
TARGET = 200_000


def rows(start: int, count: int, part: str = "a") -> pa.Table:
    """Rows of `NUMBERS`."""
    ids = list(range(start, start + count))
    return pa.table({"id": ids, "part": [part] * count, "v": [f"value {number}" for number in ids]})


@dataclass(slots=True)
class Kept:
    """A table that is maintained.

    Attributes:
        told: What maintenance says.
        before_commit: Called when a group is rewritten and not yet committed, one after the other.
        checked: Groups after whose commit the table had the rows of before, as PyIceberg reads them.
    """

    lake: Lake
    told: list[events.Event] = field(default_factory=list)
    before_commit: list[Callable[[], object]] = field(default_factory=list)
    checked: int = 0
    is_readable: bool = True
    _expected: list[Any] = field(default_factory=list)

    @classmethod
    def make(
        cls,
        folder: Path,
        schema: Schema = NUMBERS,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        properties: Mapping[str, str] | None = None,
    ) -> "Kept":
        return cls(Lake.make(folder, schema=schema, spec=spec, properties=properties))

    @property
    def table(self) -> Table:
        return self.lake.table()

    def maintenance(self, policy: Policy | None = None) -> Maintenance:
        """A maintenance of a process that has just started."""
        effects = Chance().effects()
        effects = replace(effects, emit=replace(effects.emit, failpoints=self._tell))  # their errors are raised
        policy = policy or Policy(target_file_size=TARGET, min_input_files=2)
        return Maintenance(self.lake.table, policy=policy, effects=effects)

    def _tell(self, event: events.Event) -> None:
        self.told.append(event)
        match event:
            case events.GroupRewritten() if self.before_commit:
                self.before_commit.pop(0)()
            case events.CompactionDue() if self.is_readable:
                self._expected = self.rows()
            case events.GroupReplaced() if self.is_readable:
                assert self.rows() == self._expected
                self.checked += 1

    def live(self) -> LiveFiles:
        """The live files of the head."""
        table, head = self.table, self.table.current_snapshot()
        return live_files(table, head.snapshot_id if head else None, LiveMemory(), equality=True)

    def delete(self, which: Callable[[Mapping[str, Any]], bool], *, together: bool = False) -> int:
        """Another writer deletes rows by position, by file or `together` by partition; returns how many."""
        deleted = list[DeletedRows]()
        for file in {file.path: file for file in self.live().data}.values():
            found = pq.ParquetFile(local(file.path)).read().to_pylist()
            gone = BitMap64(place for place, row in enumerate(found) if which(row))
            if gone:
                deleted.append(DeletedRows(file.path, file.spec_id, file.partition, gone))
        if deleted:
            self._commit_deletes(
                lambda table: written_together(table, deleted) if together else written(table, deleted)
            )
        return sum(len(one.positions) for one in deleted)

    def _commit_deletes(self, deletes: Callable[[Table], Sequence[ContentFile]]) -> None:
        def make(table: Table, snapshot_id: int) -> Change:
            head = table.current_snapshot()
            return Change(
                "main", head.snapshot_id if head else None, snapshot_id, says={}, deletes=tuple(deletes(table))
            )

        ChangeCommit(self.lake.table, "test").run(self.table, make)

    def rows(self, snapshot_id: int | None = None) -> list[Any]:
        """The rows as PyIceberg reads them, in one order."""
        found = self.table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
        return sorted((exactly(row) for row in found), key=repr)


def written(table: Table, deleted: Sequence[DeletedRows]) -> list[ContentFile]:
    create = lambda location: table.io.new_output(location).create()  # noqa: E731
    return write_deletes(deleted, f"{table.location()}/data", "others", create)


def written_together(table: Table, deleted: Sequence[DeletedRows]) -> list[ContentFile]:
    """One file for each partition, as Spark writes them."""
    found = []
    for partition in {one.partition for one in deleted}:
        members = sorted((one for one in deleted if one.partition == partition), key=lambda one: one.data_file)
        pairs = [(one.data_file, place) for one in members for place in one.positions]
        columns = [pa.array([pair[0] for pair in pairs]), pa.array([pair[1] for pair in pairs], pa.int64())]
        [like] = written(table, members[:1])
        schema = pq.read_schema(local(like.path))
        path = Path(local(like.path)).with_name(f"together-{uuid.uuid4()}.parquet")
        plain = [pa.field("file_path", pa.string(), nullable=False, metadata=schema.field(0).metadata), schema.field(1)]
        pq.write_table(pa.table(columns, schema=pa.schema(plain)), path)
        bounds = {FILE_PATH: members[0].data_file.encode()}, {FILE_PATH: members[-1].data_file.encode()}
        found.append(
            replace(
                like,
                path=f"file://{path}",
                record_count=len(pairs),
                file_size_bytes=path.stat().st_size,
                lower_bounds=bounds[0],
                upper_bounds=bounds[1],
                referenced_data_file="",
                split_offsets=(),
            )
        )
    return found


def equality_delete(kept: Kept, ids: Sequence[int]) -> None:
    """Another writer deletes rows by their ids. No version of PyIceberg writes such files, or reads them."""
    table = kept.table
    path = kept.lake.folder / f"equality-{uuid.uuid4()}.parquet"
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.table([list(ids)], schema=schema), path)
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(ids),
        file_size_in_bytes=path.stat().st_size,
        equality_ids=[1],
    )
    file.spec_id = table.spec().spec_id
    snapshot_id = Effects().new_snapshot_id()
    output = table.io.new_output(f"{table.location()}/metadata/{uuid.uuid4()}-m0.avro")
    with DeletesWriter(table.spec(), table.schema(), output, snapshot_id, "deflate") as writer:
        writer.add_entry(
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file)
        )
    head, number = table.current_snapshot(), getattr(table.metadata, "last_sequence_number", 0) + 1
    assert head is not None, "the table has rows"
    place = f"{table.location()}/metadata/snap-{snapshot_id}.avro"
    with write_manifest_list(2, table.io.new_output(place), snapshot_id, head.snapshot_id, number, "deflate") as lists:
        lists.add_manifests([writer.to_manifest_file(), *head.manifests(table.io)])
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=number,
        timestamp_ms=table.metadata.last_updated_ms + 1,
        manifest_list=place,
        summary=Summary(Operation.DELETE),
        schema_id=table.schema().schema_id,
    )
    updates = AddSnapshotUpdate(snapshot=snapshot), branch_at(table, "main", snapshot_id)
    kept.lake.catalog.commit_table(table, (), updates)


def files_of(kept: Kept) -> set[str]:
    """All data and delete files in the table's folder."""
    return {f"file://{path}" for path in Path(local(kept.table.location())).rglob("*.parquet")}
