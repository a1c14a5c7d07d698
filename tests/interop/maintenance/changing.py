"""A stream that changes rows by key, in a lake that others look after, and the dictionary that its table equals."""

import itertools
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec

from lakesink_catalog.connect.catalog import EMBEDDED_NAME
from lakesink_protocol.outcome import Committed
from testkit import builders
from testkit.builders import TABLE, Chance, FaultyCatalog
from testkit.change_table import BY_PART, SCHEMA, Change, ChangeStream, Reference
from tests.interop.maintenance.lake import Lake
from tests.interop.readers.engines import CATALOG, NOW, At, Engine, Rows

NAME = f"{CATALOG}.{TABLE}"


@dataclass(slots=True)
class Changing:
    """A stream of changes, whose driver is new for each batch.

    Attributes:
        lake: The lake, with its engines.
        stream: The stream.
        reference: What the table must have.
        batches: How many were run.
    """

    lake: Lake
    stream: ChangeStream
    reference: Reference
    batches: int = 0

    def run(self, batches: int = 1) -> None:
        """Run the next batches; each counts as the reference does."""
        for _ in range(batches):
            outcome = self.stream.run(self.batches)
            counts = self.reference.apply(self.stream.changes(self.batches))
            assert isinstance(outcome, Committed)
            assert outcome.changes == counts
            self.batches += 1

    def change(self, changes: Sequence[Change]) -> None:
        """Run a batch of these changes."""
        assert isinstance(self.stream.run_changes(self.batches, [changes]), Committed)
        self.reference.apply(changes)
        self.batches += 1

    def assert_read(self, *more: Engine, at: At = NOW, wanted: Rows | None = None) -> None:
        """Every reader has the rows of the reference, or the wanted ones."""
        table = self.lake.load(TABLE)
        wanted = self.reference.table if wanted is None else wanted
        for engine in (*self.lake.readers, *more):
            found = sorted(engine.read(table, table.schema(), at), key=lambda row: (row["id"], row["version"]))
            assert found == wanted, engine.name


@contextmanager
def changing(
    lake: Lake,
    *,
    partitioned: bool = False,
    spec: PartitionSpec | None = None,
    properties: Mapping[str, str] | None = None,
    seed: int = 0,
    **options: Any,
) -> Iterator[Changing]:
    """A stream into a new table in the lake, which goes with the block; `options` are the sink's."""
    beside = builders.Lake(lake.home, connected(lake))
    spec = spec or (BY_PART if partitioned else UNPARTITIONED_PARTITION_SPEC)
    beside.create(SCHEMA, spec, properties)
    a_minute_ago = time.time_ns() // 1_000_000 - 60_000  # a moment passes with each look: others come after it
    chance = Chance(itertools.count(a_minute_ago, 20))
    try:
        stream = ChangeStream(beside, chance=chance, seed=seed, keys=120, size=80, options=options)
        yield Changing(lake, stream, Reference())
    finally:
        beside.catalog.drop_table(TABLE)
        shutil.rmtree(lake.home / "warehouse" / TABLE.replace(".", "/"))


def connected(lake: Lake) -> FaultyCatalog:
    """A connection of its own to the lake's catalog."""
    uri, warehouse = f"sqlite:///{lake.home}/catalog.db", f"file://{lake.home}/warehouse"
    return FaultyCatalog(EMBEDDED_NAME, uri=uri, warehouse=warehouse)
