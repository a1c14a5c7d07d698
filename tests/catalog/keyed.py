"""A table with a key, changed by batches. Rows to remove are found by reading every file; a dictionary is the truth.

This is a locator of few lines, without pruning, memory of rows or speed: what the product's one is measured by.
"""

import hashlib
import io
import json
import struct
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField

from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.commit.request import snapshot_on
from lakesink_catalog.commit.table_change import Located
from lakesink_catalog.manifests.avro import container
from lakesink_catalog.manifests.encode import entry_encoder
from lakesink_catalog.manifests.entries import DELETES as DELETES_CONTENT
from lakesink_catalog.manifests.lists import manifests_under
from lakesink_catalog.manifests.live import FILE_PATH_COLUMN, LiveFile, LiveFiles
from lakesink_catalog.manifests.live_reading import LiveMemory, live_files
from lakesink_catalog.manifests.write import avro_layout, header_metadata
from lakesink_protocol.change import Content, ContentFile
from lakesink_protocol.identity import Batch, SinkKey, stream_batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_protocol.row_changes import ChangeCounts, KeysFile, Mode
from testkit.builders import START_MS, Chance, Lake
from testkit.commits import fence_of
from testkit.maintenance import change, roll_back
from tests.catalog.raw_avro import plain
from tests.catalog.test_carried_entries import encoded

POSITION_COLUMN = 2147483545
KEY = SinkKey("orders")
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "part", IntegerType()),
    NestedField(3, "value", LongType()),
    identifier_field_ids=[1],
)
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(FILE_PATH_COLUMN)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_COLUMN)}),
    ]
)
Row = tuple[int | None, int]
"""Partition and value of a key."""


def keyed_lake(folder: Path, *, partitioned: bool = False, **properties: str) -> Lake:
    spec = BY_PART if partitioned else UNPARTITIONED_PARTITION_SPEC
    return Lake.make(folder, schema=SCHEMA, spec=spec, properties=properties)


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def said(lake: Lake) -> Summary:
    """The summary of the head."""
    summary = lake.head().summary
    assert summary is not None
    return summary


def shown(lake: Lake) -> dict[int, Row]:
    """The rows of the table by their key, as PyIceberg reads them; no key comes twice."""
    found = lake.table().scan().to_arrow().to_pylist()
    rows = {row["id"]: (row["part"], row["value"]) for row in found}
    assert len(rows) == len(found)
    return rows


def deletes_file(
    table: Table, positions: Mapping[str, Iterable[int]], spec_id: int, partition: tuple[bytes | None, ...]
) -> ContentFile:
    """A file of position deletes, sorted, for one data file or for several."""
    pairs = sorted((path, place) for path, places in positions.items() for place in places)
    path = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    columns = [pa.array([name for name, _ in pairs]), pa.array([place for _, place in pairs], pa.int64())]
    pq.write_table(pa.table(columns, schema=DELETES), local(path))
    return ContentFile(
        path=path,
        spec_id=spec_id,
        partition=partition,
        record_count=len(pairs),
        file_size_bytes=local(path).stat().st_size,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={FILE_PATH_COLUMN: pairs[0][0].encode()},
        upper_bounds={FILE_PATH_COLUMN: pairs[-1][0].encode()},
        split_offsets=(),
        content=Content.POSITION_DELETES,
        referenced_data_file=pairs[0][0] if len(positions) == 1 else "",
    )


def positions_in(delete: LiveFile) -> list[tuple[str, int]]:
    read = pq.read_table(local(delete.path)).to_pydict()
    return list(zip(read["file_path"], read["pos"], strict=True))


@dataclass(slots=True)
class Locator:
    """Finds the live rows of these keys."""

    upserts: frozenset[int]
    deletes: frozenset[int]
    memory: LiveMemory
    heads: list[int | None] = field(default_factory=list)

    def __call__(self, table: Table, head: int | None) -> Located:
        self.heads.append(head)
        live, added, replaced, found = live_files(table, head, self.memory), [], [], Counter[int]()
        for file in live.data:
            gone, older = self._gone(live, file)
            keys = pq.read_table(local(file.path), columns=["id"]).to_pydict()["id"]
            new = {place for place, key in enumerate(keys) if key in self.upserts | self.deletes} - gone
            found.update(keys[place] for place in new)
            if new:
                positions = new | {place for one in older for _, place in positions_in(one)}
                added.append(deletes_file(table, {file.path: positions}, file.spec_id, file.partition))
                replaced += older
        updated, deleted = (sum(key in found for key in keys) for keys in (self.upserts, self.deletes))
        counts = ChangeCounts(
            upserts=len(self.upserts),
            deletes=len(self.deletes),
            inserted=len(self.upserts) - updated,
            updated=updated,
            deleted=deleted,
            absent=len(self.deletes) - deleted,
            healed=found.total() - len(found),
        )
        return Located(head, tuple(added), tuple(replaced), counts)

    @staticmethod
    def _gone(live: LiveFiles, file: LiveFile) -> tuple[set[int], list[LiveFile]]:
        """Positions that are deleted already, and the delete files that name only this data file."""
        younger = [one for one in live.deletes if one.sequence_number >= file.sequence_number]
        places = (pair for one in younger if one.referenced_data_file in ("", file.path) for pair in positions_in(one))
        only = [one for one in younger if one.referenced_data_file == file.path]
        return {place for path, place in places if path == file.path}, only


@dataclass
class Keyed:
    """A stream of changes into the table, and what the table must show."""

    lake: Lake
    rows: dict[int, Row] = field(default_factory=dict)
    chance: Chance = field(default_factory=Chance)
    memory: LiveMemory = field(default_factory=LiveMemory)
    key: SinkKey = KEY
    number: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    emit: Any = None

    @property
    def fence(self) -> FencedCommit:
        effects = self.chance.effects(self.emit) if self.emit else self.chance.effects()
        return fence_of(self.lake.table, self.key, effects, **self.options)

    @property
    def batch(self) -> Batch:
        return stream_batch(self.number, "q", start=[self.number], end=[self.number + 1])

    def prepare(self, upserts: Mapping[int, Row], deletes: Iterable[int] = ()) -> tuple[PreparedBatch, Locator]:
        decision, gone = self.fence.decide(self.batch), frozenset(deletes)
        table = decision.table
        files = self._files(table, upserts)
        keys = self._keys(table, [*upserts, *gone]) if upserts or gone else ()
        changes = PreparedChanges((1,), (), keys, 0, Mode.CHANGES)
        prepared = self.fence.prepare(decision, files, schema=table.schema(), changes=changes)
        return prepared, Locator(frozenset(upserts), gone, self.memory)

    def run(
        self,
        upserts: Mapping[int, Row],
        deletes: Iterable[int] = (),
        *,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Committed:
        """Commit a batch; the table shows what the dictionary has. `meanwhile` runs between prepare and commit."""
        gone = frozenset(deletes)
        prepared, locator = self.prepare(upserts, gone)
        meanwhile()
        outcome = self.commit(prepared, locator)
        assert isinstance(outcome, Committed)
        self.took(upserts, gone)
        return outcome

    def commit(self, prepared: PreparedBatch, locator: Locator) -> Committed | AlreadyCommitted | None:
        return self.fence.commit(self.batch, prepared, locator)

    def took(self, upserts: Mapping[int, Row], deletes: Iterable[int] = ()) -> None:
        """The batch is in the table: the dictionary has it too, and the next batch is due."""
        self.rows |= upserts
        for key in deletes:
            self.rows.pop(key, None)
        self.number += 1
        assert shown(self.lake) == self.rows

    def _files(self, table: Table, upserts: Mapping[int, Row]) -> list[ContentFile]:
        if table.spec().is_unpartitioned():
            return [self._file(table, upserts, ())] if upserts else []
        parts = sorted({part for part, _ in upserts.values()}, key=str)
        return [
            self._file(
                table,
                {key: row for key, row in upserts.items() if row[0] == part},
                (None if part is None else self._packed(table, part),),
            )
            for part in parts
        ]

    @staticmethod
    def _packed(table: Table, part: int) -> bytes:
        return struct.pack("<i" if isinstance(table.schema().find_type("part"), IntegerType) else "<q", part)

    @staticmethod
    def _file(table: Table, rows: Mapping[int, Row], partition: tuple[bytes | None, ...]) -> ContentFile:
        path = f"{table.location()}/data/{uuid.uuid4()}.parquet"
        found = [{"id": key, "part": part, "value": value} for key, (part, value) in rows.items()]
        local(path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(found, schema=schema_to_pyarrow(table.schema())), local(path))
        return ContentFile(
            path=path,
            spec_id=table.spec().spec_id,
            partition=partition,
            record_count=len(rows),
            file_size_bytes=local(path).stat().st_size,
            column_sizes={},
            value_counts={1: len(rows)},
            null_value_counts={},
            nan_value_counts={},
            lower_bounds={1: struct.pack("<q", min(rows))},
            upper_bounds={1: struct.pack("<q", max(rows))},
            split_offsets=(4,),
        )

    @staticmethod
    def _keys(table: Table, keys: list[int]) -> tuple[KeysFile, ...]:
        data = repr(keys).encode()
        path = f"{table.location()}/data/{uuid.uuid4()}.keys"
        local(path).parent.mkdir(parents=True, exist_ok=True)
        local(path).write_bytes(data)
        return (KeysFile(path, 0, len(keys), len(data), hashlib.sha256(data).hexdigest()),)


def delete_foreign(
    lake: Lake,
    files: Iterable[ContentFile],
    *,
    in_file: Mapping[str, Any] | None = None,
    in_entry: Mapping[str, Any] | None = None,
) -> None:
    """Another writer's snapshot with files of position deletes of one spec, whose manifest has another layout.

    Its files have no field for the data file that they name; the other arguments are additional fields of a manifest.
    """
    table, head, snapshot_id = lake.table(), lake.head(), uuid.uuid4().int >> 65
    files = list(files)
    spec = table.specs()[files[0].spec_id]
    own = avro_layout(spec, table.schema(), DELETES_CONTENT)
    schema: Any = json.loads(json.dumps(own))
    [of_file] = [one["type"] for one in schema["fields"] if one["field-id"] == 2]
    of_file["fields"] = [one for one in of_file["fields"] if one["field-id"] != 143] + (
        [dict(in_file)] if in_file else []
    )
    schema["fields"] += [dict(in_entry)] if in_entry else []
    encode = entry_encoder(own, snapshot_id)
    written = fastavro.parse_schema(plain(own))
    entries: list[Any] = [fastavro.schemaless_reader(io.BytesIO(encode(file)), written, None) for file in files]
    for entry in entries:
        if in_file:
            entry["data_file"][in_file["name"]] = None
        if in_entry:
            entry[in_entry["name"]] = None
    metadata = header_metadata(spec, table.schema(), DELETES_CONTENT) | {"avro.schema": json.dumps(schema).encode()}
    path = f"{table.location()}/metadata/{uuid.uuid4()}-m0.avro"
    local(path).write_bytes(container(metadata, "null", [[encoded(entry, schema) for entry in entries]]))
    manifest = ManifestFile.from_args(
        manifest_path=path,
        manifest_length=local(path).stat().st_size,
        partition_spec_id=spec.spec_id,
        content=ManifestContent.DELETES,
        sequence_number=-1,
        min_sequence_number=-1,
        added_snapshot_id=snapshot_id,
        added_files_count=len(files),
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=sum(file.record_count for file in files),
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=[],
        key_metadata=None,
    )
    more = {"delete-files": len(files), "position-deletes": sum(file.record_count for file in files)}
    more["files-size"] = sum(file.file_size_bytes for file in files)
    totals = {name: int(count) for name, count in said(lake).additional_properties.items() if name.startswith("total-")}
    summary = {name: str(count + more.get(name.removeprefix("total-"), 0)) for name, count in totals.items()}
    manifests = [manifest, *manifests_under(table.io, head)]
    snapshot = snapshot_on(table, head.snapshot_id, snapshot_id, manifests, summary, START_MS, Operation.DELETE)
    change(lake, AddSnapshotUpdate(snapshot=snapshot.model_copy(update={"timestamp_ms": head.timestamp_ms + 1})))
    roll_back(lake, snapshot_id)  # forward: the head moves to it
