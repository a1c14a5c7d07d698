"""Tables of real files for maintenance, written by PyIceberg, and what other writers do to them. No Spark."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap64

from lakesink.parquet.deletes import DeletedRows, write_deletes
from lakesink.upkeep.maintenance import Maintenance
from lakesink.upkeep.policy import Policy
from lakesink_catalog.commit.change_commit import ChangeCommit
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_catalog.manifests.live_reading import LiveMemory, live_files
from lakesink_protocol import events
from testkit.builders import Chance, Lake
from testkit.tasks import exactly, local

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
        before_commit: Called when a group is rewritten and not yet committed.
    """

    lake: Lake
    told: list[events.Event] = field(default_factory=list)
    before_commit: list[Callable[[], object]] = field(default_factory=list)

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
        effects = replace(effects, emit=effects.emit.also(self._tell))
        policy = policy or Policy(target_file_size=TARGET, min_input_files=2)
        return Maintenance(self.lake.table, policy=policy, effects=effects)

    def _tell(self, event: events.Event) -> None:
        self.told.append(event)
        if isinstance(event, events.GroupRewritten) and self.before_commit:
            self.before_commit.pop(0)()

    def live(self) -> LiveFiles:
        """The live files of the head."""
        table, head = self.table, self.table.current_snapshot()
        return live_files(table, head.snapshot_id if head else None, LiveMemory(), equality=True)

    def delete(self, which: Callable[[Mapping[str, Any]], bool], properties: Mapping[str, str] | None = None) -> int:
        """Another writer deletes rows by position; returns how many."""
        live, deleted = self.live(), list[DeletedRows]()
        for file in {file.path: file for file in live.data}.values():
            found = pq.ParquetFile(local(file.path)).read().to_pylist()
            gone = BitMap64(place for place, row in enumerate(found) if which(row))
            if gone:
                deleted.append(DeletedRows(file.path, file.spec_id, file.partition, gone))
        self.change(deletes=lambda table: write_deletes(deleted, f"{table.location()}/data", "others", creating(table)))
        return sum(len(one.positions) for one in deleted)

    def change(self, deletes: Callable[[Table], Sequence[Any]]) -> None:
        def make(table: Table, snapshot_id: int) -> Change:
            head = table.current_snapshot()
            return Change("main", head and head.snapshot_id, snapshot_id, says={}, deletes=tuple(deletes(table)))

        ChangeCommit(self.lake.table, "test").run(self.table, make)

    def rows(self, snapshot_id: int | None = None) -> list[Any]:
        """The rows as PyIceberg reads them, in one order."""
        found = self.table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
        return sorted((exactly(row) for row in found), key=repr)


def creating(table: Table) -> Callable[[str], Any]:
    return lambda location: table.io.new_output(location).create()
