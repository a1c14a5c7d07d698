"""A real catalog that can fail on demand, a real table, and streams that write real files into it. No Spark.

Each row contains its batch, its position in the batch, and the run that wrote it, so that a reader can count each row.
"""

import hashlib
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from pyiceberg.types import LongType, NestedField
from sqlalchemy import event

from lakesink.settings.relations import Entry
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.prepared import SNAPSHOT_IDS
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol.coordinator import Write, run_batch
from lakesink_protocol.errors import BatchRefused
from lakesink_protocol.events import Listeners
from lakesink_protocol.identity import MAIN_BRANCH, Batch, SinkKey, SinkKind, stream_batch, transaction_batch
from lakesink_protocol.ledger import COMPACTED, FORGOTTEN, RESTORED, Mark, mark_of
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes

TABLE = "demo.events"
START_MS = 1_900_000_000_000
ROWS = pa.schema([("batch", pa.int64()), ("position", pa.int64()), ("written", pa.int64())])
_SEEDS = itertools.count()
SCHEMA = Schema(*(NestedField(number, name, LongType()) for number, name in enumerate(ROWS.names, 1)))

Apply = Callable[[], CommitTableResponse]
Fault = Callable[[Apply], CommitTableResponse]


class FaultyCatalog(SqlCatalog):
    """PyIceberg's SQL catalog; the next commits of lakesink meet the next faults.

    Attributes:
        faults: Taken from the front, one for each commit of lakesink; without a fault the commit is applied.
        sent: The requests of lakesink, in order.
        load_faults: Errors for the next loads, from the front.
        late: Requests that `arrives_late` held back.
    """

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        event.listen(self.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
        self.engine.dispose()
        self.faults: list[Fault] = []
        self.sent: list[tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]] = []
        self.load_faults: list[Exception] = []
        self.late: list[Apply] = []

    def load_table(self, identifier: str | Identifier) -> Table:
        if self.load_faults:
            raise self.load_faults.pop(0)
        return super().load_table(identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        def apply() -> CommitTableResponse:
            return super(FaultyCatalog, self).commit_table(table, requirements, updates)

        added = [update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate)]
        summaries = [snapshot.summary for snapshot in added if snapshot.summary]
        own = (FORGOTTEN, RESTORED, COMPACTED)
        if not any(mark_of(said) or any(said.get(name) for name in own) for said in summaries):
            return apply()
        self.sent.append((requirements, updates))
        return self.faults.pop(0)(apply) if self.faults else apply()

    def arrives_late(self, apply: Apply) -> CommitTableResponse:
        """A fault: the request is accepted and not answered; the test applies it later."""
        self.late.append(apply)
        raise TimeoutError("no answer")


@dataclass(slots=True)
class Chance:
    """Clock and sleep of a stream's drivers, and unique ids. The clock advances by a second with each reading."""

    now: "itertools.count[int]" = field(default_factory=lambda: itertools.count(START_MS, 1000))
    waited_ms: list[float] = field(default_factory=list)
    ticking: int = 0

    def effects(self, emit: Listeners = LISTENERS) -> Effects:
        ids = random.Random(next(_SEEDS))
        return Effects(
            now_ms=lambda: next(self.now),
            monotonic_ms=self._tick,
            sleep_ms=self._sleep,
            jitter=lambda: 0.5,
            new_snapshot_id=lambda: ids.choice(SNAPSHOT_IDS),
            storage_time_ms=lambda _io, _path: None,  # the files have real times
            emit=emit,
        )

    def move_ms(self, by_ms: int) -> None:
        """The wall clock jumps."""
        self.now = itertools.count(next(self.now) + by_ms, 1000)

    def _tick(self) -> int:
        return self.ticking

    def _sleep(self, wait_ms: float) -> None:
        self.waited_ms.append(wait_ms)
        self.ticking += int(wait_ms)


@dataclass(frozen=True, slots=True)
class Lake:
    """One table, by default in a catalog of its own."""

    folder: Path
    catalog: FaultyCatalog
    name: str = TABLE

    @classmethod
    def make(
        cls,
        folder: Path,
        *,
        schema: Schema = SCHEMA,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        properties: Mapping[str, str] | None = None,
    ) -> "Lake":
        database = folder / "catalog.db"
        if not database.exists():
            database.write_bytes(_empty_catalog())
        lake = cls(folder, cls.connect(folder))
        lake.create(schema, spec, properties)
        return lake

    @staticmethod
    def connect(folder: Path) -> FaultyCatalog:
        return FaultyCatalog("test", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")

    def create(
        self,
        schema: Schema = SCHEMA,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        wanted = {"format-version": "2"} | dict(properties or {})
        self.catalog.create_table(self.name, schema, partition_spec=spec, properties=wanted)

    def table(self) -> Table:
        return self.catalog.load_table(self.name)

    def head(self, branch: str = MAIN_BRANCH) -> Snapshot:
        head = self.table().snapshot_by_name(branch)
        assert head is not None
        return head

    def files(self) -> set[Path]:
        """Every file of the warehouse."""
        return {path for path in (self.folder / "warehouse").rglob("*") if path.is_file()}


@cache
def _empty_catalog() -> bytes:
    """The database of a catalog that has a namespace: to make it anew takes as long as the batch of a test."""
    with TemporaryDirectory() as folder:
        catalog = Lake.connect(Path(folder))
        catalog.create_namespace("demo")
        catalog.close()
        return Path(folder, "catalog.db").read_bytes()


@dataclass(slots=True)
class Stream:
    """A stream, or a transaction application. Each `run` is a new driver process: it remembers nothing."""

    lake: Lake
    sink_id: str = "events"
    branch: str = MAIN_BRANCH
    query: str = ""
    kind: SinkKind = SinkKind.STREAM
    options: dict[str, Any] = field(default_factory=dict)
    catalog: Catalog | None = None
    chance: Chance = field(default_factory=Chance)
    writes: int = 0
    listeners: Listeners = LISTENERS

    def __post_init__(self) -> None:
        """Streams of other sinks or branches have other queries."""
        usual = (self.sink_id, self.branch) == ("events", MAIN_BRANCH)
        self.query = self.query or ("query-1" if usual else f"query-of-{self.sink_id}-{self.branch}")

    @property
    def key(self) -> SinkKey:
        return SinkKey(self.sink_id, self.branch, self.kind)

    def sink(self, **options: Any) -> IcebergSink:
        """The sink of a driver that has just started."""
        of_stream = self.kind is SinkKind.STREAM
        needed = {"sink_id": self.sink_id, "checkpoint": "/nowhere"} if of_stream else {}
        given = {**needed, **self.options, **options, "branch": self.branch}
        return IcebergSink(
            table=self.lake.name,
            key=self.key,
            open_catalog=lambda: self.catalog or self.lake.catalog,
            settings=Settings.parse(given, entry=Entry.STREAM if of_stream else Entry.FORMAT_WRITE),
            schema=ROWS,
            effects=self.chance.effects(self.listeners),
        )

    def batch(self, batch_id: int, *, start: int | None = None, end: int | None = None) -> Batch:
        """Batch n reads offsets n to n+1, unless another range is given."""
        if self.kind is SinkKind.TXN:
            return transaction_batch(batch_id)
        start = batch_id if start is None else start
        return stream_batch(batch_id, self.query, start=[start], end=[start + 1 if end is None else end])

    def of_kafka(self, batch_id: int, start: int, end: int) -> Batch:
        """A batch that reads one partition of a topic."""
        ends = [[{"orders": {"0": offset}}] for offset in (start, end)]
        return stream_batch(batch_id, self.query, start=ends[0], end=ends[1])

    @staticmethod
    def tells(batch: Batch) -> int:
        """The number in its rows: the last offset that it reads; its id, if it reads none that is a number."""
        end = json.loads(batch.offsets)[0] if batch.offsets else None
        return end - 1 if isinstance(end, int) else batch.batch_id

    def run(self, batch: Batch | int, rows: int = 3, **options: Any) -> Outcome:
        """Run one batch with a driver that has just started."""
        return self.run_with(self.sink(**options), batch, rows)

    def filled(self, batches: int) -> Self:
        """Run its first batches."""
        for number in range(batches):
            self.run(number)
        return self

    def overrule(self, batch: Batch | int, does: str = "commit", **options: Any) -> Outcome:
        """Run a batch that is refused, then accept it with a word that the refusal offers."""
        try:
            self.run(batch, **options)
        except BatchRefused as refused:
            return self.run(batch, accept=offered(refused)[does], **options)
        raise AssertionError("it was not refused")

    def run_with(self, sink: IcebergSink, batch: Batch | int, rows: int = 3, job: Write | None = None) -> Outcome:
        batch = self.batch(batch) if isinstance(batch, int) else batch
        outcome = run_batch(batch, [sink], job or self.write(batch, rows))[sink.name]
        sink.maintain()
        return outcome

    def write(self, batch: Batch, rows: int = 3, tasks: int = 1) -> Write:
        """The job: real Parquet files by the real writer, `rows` in each task."""

        def job(writers: Mapping[str, TaskWriter]) -> Votes:
            self.writes += 1
            parts = [self.rows(self.tells(batch), range(task * rows, (task + 1) * rows)) for task in range(tasks)]
            return Votes.in_order(
                {
                    name: [writer.write(task, iter(part)) for task, part in enumerate(parts)]
                    for name, writer in writers.items()
                }
            )

        return job

    def rows(self, told: int, positions: range) -> list[pa.RecordBatch]:
        columns = [[told] * len(positions), list(positions), [self.writes] * len(positions)]
        return [pa.record_batch([pa.array(values, pa.int64()) for values in columns], schema=ROWS)] if positions else []

    def own_snapshots(self) -> list[tuple[Mark, Snapshot]]:
        """The sink's snapshots in the branch's ancestry, oldest first, as far as they are retained."""
        table, found = self.lake.table(), []
        snapshot = table.snapshot_by_name(self.branch)
        while snapshot is not None:
            mark = mark_of(snapshot.summary)
            if mark is not None and mark.key == self.key:
                found.append((mark, snapshot))
            parent = snapshot.parent_snapshot_id
            snapshot = table.snapshot_by_id(parent) if parent is not None else None
        return found[::-1]

    def marks(self) -> list[Mark]:
        return [mark for mark, _ in self.own_snapshots()]

    def snapshot_of(self, batch_id: int) -> int:
        [found] = [snapshot.snapshot_id for mark, snapshot in self.own_snapshots() if mark.batch_id == batch_id]
        return found


def offered(refused: BatchRefused) -> dict[str, str]:
    """The words that a refusal prints, by ``commit`` and ``skip``."""
    words = re.findall(r'accept="([^"]*)"', refused.action)
    return {word.rpartition(":")[2]: word for word in words}


def counted(lake: Lake, branch: str = MAIN_BRANCH) -> Counter[tuple[int, int]]:
    """The number of each row of each batch, as PyIceberg and DuckDB agree; no file is referenced twice."""
    scan = lake.table().scan(snapshot_id=lake.head(branch).snapshot_id)
    paths = [task.file.file_path for task in scan.plan_files()]
    assert len(paths) == len(set(paths))
    found = scan.select("batch", "position").to_arrow().to_pylist()
    rows = Counter((row["batch"], row["position"]) for row in found)
    read = duckdb.read_parquet([path.removeprefix("file://") for path in paths]) if paths else None
    assert rows == Counter(read.project("batch, position").fetchall() if read else ())
    return rows


def expected(*batches: int, rows: int = 3) -> Counter[tuple[int, int]]:
    """Each row of these batches once."""
    return Counter(itertools.product(batches, range(rows)))


def contents(lake: Lake) -> dict[Path, str]:
    """Digest of every file, to check that none was changed."""
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in lake.files()}


def lasting_contents(lake: Lake) -> dict[Path, str]:
    """The same without prepared records, which are removed after a later commit."""
    return {path: digest for path, digest in contents(lake).items() if not is_prepared_record(path)}


def is_prepared_record(path: Path) -> bool:
    return path.parts[-4:-3] == ("lakesink",) and path.suffix == ".json"


def parquet_files(lake: Lake) -> set[Path]:
    return {path for path in lake.files() if path.suffix == ".parquet"}
