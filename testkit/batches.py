"""Commits batches like the product, without Spark: the receipts name files that do not exist."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.evolution import evolve
from lakesink_catalog.read.view import view_table
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.change import ContentFile, SchemaChange
from lakesink_protocol.identity import MAIN_BRANCH, Batch, SinkKey, SinkKind, stream_batch, transaction_batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Skip
from testkit.commits import fence_of

START_MS = 1_900_000_000_000


@dataclass(frozen=True, slots=True)
class Writer:
    """Commits batches of one sink; its clock advances by a minute with each reading."""

    catalog: Catalog
    table: str = "demo.events"
    sink: str = "events"
    branch: str = MAIN_BRANCH
    kind: SinkKind = SinkKind.STREAM
    query: str = "q1"
    clock: "itertools.count[int]" = field(default_factory=lambda: itertools.count(START_MS, 60_000))

    @property
    def key(self) -> SinkKey:
        return SinkKey(self.sink, self.branch, self.kind)

    def load(self) -> Table:
        return load_table(self.catalog, self.table)

    def batch(self, batch_id: int) -> Batch:
        if self.kind is SinkKind.TXN:
            return transaction_batch(batch_id)
        return stream_batch(batch_id, self.query, start=[{"at": batch_id}], end=[{"at": batch_id + 1}])

    def situation(self, batch_id: int) -> Situation:
        table = self.load()
        return Situation(view_table(table, self.key), self.key, self.batch(batch_id), str(table.metadata.table_uuid))

    def commit(
        self,
        batch_id: int,
        rows: int = 10,
        *,
        accept: str = "",
        recovered: bool = False,
        schema_change: SchemaChange | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Committed | AlreadyCommitted | None:
        """Commit a batch; `meanwhile` runs between its prepare and its commit."""
        table = self.load()
        accepted = Accept.parse(accept) if accept else None
        effects = Effects(now_ms=lambda: next(self.clock), storage_time_ms=lambda _io, _path: None)
        fence = fence_of(self.load, self.key, effects, accept=accepted)
        batch = self.batch(batch_id)
        decision = fence.decide(batch)
        if isinstance(decision.verdict, Skip):
            return AlreadyCommitted(decision.verdict.snapshot_id)
        files = [_file(table, f"{self.sink}-{batch_id}", rows)] if rows else []
        schema = evolve(decision.table, schema_change).table.schema()
        prepared = fence.prepare(decision, files, schema=schema, schema_change=schema_change)
        meanwhile()
        return fence.commit(batch, replace(prepared, recovered=recovered))


def _file(table: Table, name: str, rows: int) -> ContentFile:
    return ContentFile(
        path=f"{table.location()}/data/{name}.parquet",
        spec_id=table.spec().spec_id,
        partition=(),
        record_count=rows,
        file_size_bytes=rows * 100,
        column_sizes={1: rows * 90},
        value_counts={1: rows},
        null_value_counts={1: 0},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        split_offsets=(4,),
    )
