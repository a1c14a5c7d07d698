"""An exact reference for upserts: a dictionary, changed batch by batch, and the real table to compare it with."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType, LongType, NestedField, StringType

from lakesink.rows.changed_rows import DELETE_MARK
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink_protocol.coordinator import Write
from lakesink_protocol.identity import Batch
from lakesink_protocol.ledger import COMPACTED
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.row_changes import ChangeCounts
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Vote, Votes, receipts_of
from testkit.builders import Lake, Stream

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "version", LongType(), required=True),
    NestedField(3, "part", StringType()),
    NestedField(4, "value", StringType()),
    NestedField(5, "amount", DecimalType(38, 2)),
    identifier_field_ids=[1],
)
BY_PART = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "part"))
ROWS = pa.schema(
    [
        ("id", pa.int64()),
        ("version", pa.int64()),
        ("part", pa.string()),
        ("value", pa.string()),
        ("amount", pa.decimal128(38, 2)),
    ]
)
CHANGES = ROWS.append(pa.field(DELETE_MARK, pa.bool_()))
OPTIONS: Mapping[str, Any] = {
    "mode": "changes",
    "keys": ["id"],
    "sequence_by": "version",
    "apply_as_deletes": "op = 'd'",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a row."""

    key: int
    version: int
    part: str
    value: str
    amount: Decimal
    deletes: bool = False

    @property
    def row(self) -> dict[str, Any]:
        """The row that an upsert stores."""
        return {
            "id": self.key,
            "version": self.version,
            "part": self.part,
            "value": self.value,
            "amount": self.amount,
        }

    @property
    def arriving(self) -> dict[str, Any]:
        """The row as it arrives, with its mark; a delete has only its key and its version."""
        row = {"id": self.key, "version": self.version} if self.deletes else self.row
        return {**row, DELETE_MARK: self.deletes}


@dataclass(slots=True)
class Reference:
    """The rows by key that the table must have."""

    rows: dict[int, Change] = field(default_factory=dict)

    def apply(self, changes: Iterable[Change]) -> ChangeCounts:
        """Apply one batch, and count as lakesink must."""
        newest: dict[int, Change] = {}
        superseded = inserted = updated = deleted = late_upserts = late_deletes = absent = 0
        for change in changes:
            known = newest.get(change.key)
            superseded += known is not None
            if known is None or change.version > known.version:
                newest[change.key] = change
        for change in newest.values():
            live = self.rows.get(change.key)
            late = live is not None and live.version > change.version
            if change.deletes:
                late_deletes, absent, deleted = late_deletes + late, absent + (live is None), deleted + bool(live)
                deleted -= late
            else:
                late_upserts, inserted = late_upserts + late, inserted + (live is None)
                updated += live is not None and not late
            if late:
                continue
            if change.deletes:
                self.rows.pop(change.key, None)
            else:
                self.rows[change.key] = change
        upserts, deletes = inserted + updated + late_upserts, deleted + late_deletes + absent
        return ChangeCounts(
            upserts, deletes, superseded, inserted, updated, deleted, late_upserts, late_deletes, absent
        )

    @property
    def table(self) -> list[dict[str, Any]]:
        """The rows in the order of their keys."""
        return [self.rows[key].row for key in sorted(self.rows)]


@dataclass(slots=True)
class ChangeStream(Stream):
    """A stream of changes; the batch of a number always has the same changes."""

    seed: int = 0
    keys: int = 40
    size: int = 25
    tasks: int = 2

    def __post_init__(self) -> None:
        Stream.__post_init__(self)
        self.options = {**OPTIONS, **self.options}

    def sink(self, **options: Any) -> IcebergSink:
        """The sink of a driver that has just started."""
        sink = Stream.sink(self, **options)
        return IcebergSink(sink.table, sink.key, sink.open_catalog, sink.settings, ROWS, effects=sink.effects)

    def changes(self, number: int) -> list[Change]:
        """The changes of a batch. Versions grow with the batches, with some late ones; two of a key never tie."""
        chance = random.Random(f"{self.seed}-{number}")
        found = []
        for at in range(chance.randrange(self.size + 1)):
            key = chance.randrange(self.keys)
            late = chance.randrange(4) if chance.random() < 0.2 else 0
            version = max(0, number - late) * 1000 + at
            part, amount = chance.choice("abc"), Decimal(chance.randrange(-(10**37), 10**37)).scaleb(-2)
            found.append(Change(key, version, part, f"v{version}", amount, deletes=chance.random() < 0.3))
        return found

    def write(self, batch: Batch, rows: int = 3, tasks: int = 1) -> Write:  # noqa: ARG002 - a batch says its rows
        """The job. Changes of a key go to one task, as Spark's shuffle sends them."""
        changes = self.changes(self.tells(batch))

        def job(writers: Mapping[str, TaskWriter]) -> Votes:
            self.writes += 1
            parts = [[one for one in changes if one.key % self.tasks == task] for task in range(self.tasks)]
            return votes_of(writers, parts)

        return job

    def run_changes(self, batch_id: int, changes: Sequence[Sequence[Change]]) -> Outcome:
        """Run a batch with these changes of its tasks, by a driver that has just started."""
        return self.run_with(self.sink(), batch_id, job=self.job_of(changes))

    @staticmethod
    def job_of(changes: Sequence[Sequence[Change]]) -> Write:
        """The job whose tasks have these changes."""
        return lambda writers: votes_of(writers, changes)


def votes_of(writers: Mapping[str, TaskWriter], tasks: Sequence[Sequence[Change]]) -> Votes:
    """Those of tasks that wrote these changes."""
    [(name, writer)] = writers.items()
    written = [writer.write(task, batches_of(part)) for task, part in enumerate(tasks)]
    return Votes(len(tasks), [Vote(task, receipts_of(name, writer, one)) for task, one in enumerate(written)])


def batches_of(changes: Sequence[Change]) -> Iterator[pa.RecordBatch]:
    """The changes as they arrive, in batches of seven."""
    for start in range(0, len(changes), 7):
        yield pa.RecordBatch.from_pylist([one.arriving for one in changes[start : start + 7]], schema=CHANGES)


def upsert_lake(folder: Path, *, partitioned: bool = False, properties: Mapping[str, str] | None = None) -> Lake:
    """A table with a key."""
    spec = BY_PART if partitioned else UNPARTITIONED_PARTITION_SPEC
    return Lake.make(folder, schema=SCHEMA, spec=spec, properties=properties)


def rows_of(lake: Lake, snapshot_id: int | None = None) -> list[dict[str, Any]]:
    """The table's rows in the order of their keys, as PyIceberg reads them; a key that is there twice occurs twice."""
    rows: list[dict[str, Any]] = lake.table().scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["id"], row["version"]))


def compactions(lake: Lake) -> list[Snapshot]:
    """Of the stream, oldest first."""
    found = lake.table().metadata.snapshots
    return [one for one in found if one.summary and COMPACTED in one.summary.additional_properties]


def write_all_anew(lake: Lake) -> None:
    """Another engine writes all live rows into new files, in another order."""
    table = lake.table()
    rows = table.scan().to_arrow()
    if rows.num_rows:
        table.overwrite(rows.take(pa.array(random.Random(rows.num_rows).sample(range(rows.num_rows), rows.num_rows))))
