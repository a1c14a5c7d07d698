"""Hostile table properties, and hostile values of rows: files stay where they belong, and no property names code."""

import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from zlib import crc32

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression, EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from lakesink.settings.table_settings import PROPERTIES
from lakesink.sinks.iceberg.logs import ReportedLog
from lakesink.sinks.iceberg.transaction import IcebergTransaction
from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog
from lakesink_protocol.outcome import Committed
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes
from proof.security.judge import ACCEPTED, Unsafe, lies_in, refused_by, require
from proof.security.mutation import TEXTS, UNTOUCHED, Forged, honest_json
from testkit.builders import Lake, Stream

BAIT = "proof.security.bait"
CODE = ("py-io-impl", "write.py-location-provider.impl", "write.location-provider.impl", "io-impl", "py-catalog-impl")
PLACES = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
OTHERS = (
    "write.metadata.delete-after-commit.enabled", "write.avro.compression-codec", "write.metadata.metrics.default",
    "write.metadata.metrics.column.batch", "write.metadata.metrics.max-inferred-column-defaults", "format-version",
    "lakesink.ledger.stream.other", "lakesink.ledger.txn.events", "lakesink.ledger.stream.events@main",
    "lakesink.allowed-locations", "warehouse", "s3.endpoint", "s3.signer", "token", "credential",
)  # fmt: skip
LONGEST_WAIT_MS = 7 * 86_400_000
NAMES = (*(known.name for known in PROPERTIES), *CODE, *PLACES, *OTHERS)
VALUES = (
    *TEXTS, f"{BAIT}.Bait", "0", "7", str(2**31), str(2**53), str(2**63 - 1), str(2**63), "9" * 5_000,
    "1e999", "NaN", "-1",
    "1 TB", "999999999999999 TB", "0.000000001k", "zstd", "lz4", "brotli", "lzo", "truncate(999999999)", "truncate(-1)",
    "true", "false", "://" * 2_000, "password=" * 500, "a:" * 3_000, "x" * 60_000,
)  # fmt: skip


@dataclass(slots=True)
class Properties:
    """Any properties of a table, before a driver's look: what the plan for the executors then says."""

    folder: Path
    name: str = "table properties"
    _lake: Lake = field(init=False)
    _metadata: Path = field(init=False)
    _honest: Any = field(init=False)
    _stream: Stream = field(init=False)
    _catalog: FoundCatalog = field(init=False)

    def __post_init__(self) -> None:
        self._lake = Lake.make(self.folder)
        home = {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/warehouse"}
        self._catalog = CatalogConfig("test", {"type": "sql", **home}).find()
        self._stream = Stream(self._lake)
        self._stream.run(0)
        self._metadata = Path(urlsplit(self._lake.table().metadata_location).path)
        self._honest = json.loads(self._metadata.read_bytes())

    def forge(self, chance: random.Random) -> Forged:
        if chance.random() < 0.02:
            return Forged(UNTOUCHED, b"{}")
        chosen = {chance.choice(NAMES): self._value(chance) for _ in range(chance.choice((1, 1, 1, 2, 5)))}
        return Forged("property of code" if chosen.keys() & set(CODE) else "property", honest_json(chosen))

    def feed(self, data: bytes) -> str:
        given: Mapping[str, str] = json.loads(data)
        document = self._honest | {"properties": self._honest["properties"] | given}
        self._metadata.write_bytes(honest_json(document))
        refused = refused_by(self._plan)
        require(BAIT not in sys.modules, "a class that a table names was imported")
        return refused or ACCEPTED

    def _plan(self) -> None:
        sink = replace(self._stream.sink(), open_catalog=self._catalog.open)
        begun = sink.begin(self._stream.batch(1))
        if not isinstance(begun, IcebergTransaction):
            raise Unsafe("a batch that is not there was skipped")
        plan, log = begun.write.plan, begun.prepared_log
        assert isinstance(log, ReportedLog)
        warehouse = f"file://{self.folder}/warehouse"
        for place in (plan.data_location, log.records.folder):
            require(lies_in(f"{place}/x", warehouse), "files would leave the warehouse")
        require(set(plan.file_io) <= {"s3.endpoint", "s3.signer"}, "a property that is no setting of the storage")
        policy = begun.fence.options.retry
        waits = (policy.min_wait_ms, policy.max_wait_ms, policy.total_timeout_ms)
        require(all(0 <= wait <= LONGEST_WAIT_MS for wait in waits), "a wait that never ends")

    def _value(self, chance: random.Random) -> str:
        own = f"file://{self.folder}/warehouse/demo.db/events"
        near = (own, f"{own}/../..", f"{own}/%2e%2e/x", f"{own}-other", own.replace("file://", "s3://"), f"{own}\n/x")
        return chance.choice(chance.choice((VALUES, VALUES, near)))


@dataclass(slots=True)
class Values:
    """Partition values as paths, written, committed and read back."""

    folder: Path
    name: str = "partition values"

    def forge(self, chance: random.Random) -> Forged:
        odd = [chance.choice(TEXTS) for _ in range(chance.randint(1, 8))]
        mixed = ["".join(chance.choices((*TEXTS[:36], "a", "/", "="), k=3)) for _ in range(4)]
        rows = [text.encode("utf-8", "replace").decode() for text in (*odd, *mixed)]
        return Forged("values", honest_json(rows))

    def feed(self, data: bytes) -> str:
        values: list[str] = json.loads(data)
        home = Path(tempfile.mkdtemp(dir=self.folder))
        column = chr(0x202E) + "\n/%2e=" + "c" * 300
        schema = Schema(NestedField(1, column, StringType()), NestedField(2, "n", LongType()))
        spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), column))
        properties = {"write.object-storage.enabled": "true"} if crc32(data) % 2 else {}
        lake = Lake.make(home, schema=schema, spec=spec, properties=properties)
        try:
            return refused_by(lambda: _written_and_read(lake, column, values)) or ACCEPTED
        finally:
            lake.catalog.engine.dispose()
            shutil.rmtree(home)


def _written_and_read(lake: Lake, column: str, values: list[str]) -> None:
    stream = Stream(lake)
    sink = stream.sink()
    rows = pa.record_batch(
        [pa.array(values, pa.string()), pa.array(range(len(values)), pa.int64())], names=[column, "n"]
    )
    sink.schema = rows.schema

    def job(writers: Mapping[str, TaskWriter]) -> Votes:
        return Votes.in_order({name: [writer.write(0, iter([rows]))] for name, writer in writers.items()})

    outcome = stream.run_with(sink, 0, job=job)
    require(isinstance(outcome, Committed), "the batch is not there")
    table = lake.table()
    paths = [task.file.file_path for task in table.scan().plan_files()]
    require(all(_is_below(path, f"{table.location()}/data") for path in paths), "a file left the data location")
    found = table.scan().to_arrow().sort_by("n").column(column).to_pylist()
    require(found == values, "a reader gets another value back")
    for value in values[:2]:
        only = _equal_to(column, value)
        again = table.scan(row_filter=only).to_arrow().column(column).to_pylist()
        require(again == [one for one in values if one == value], "a filter passes over a value")


_equal_to = cast("Callable[[str, str], BooleanExpression]", EqualTo)
"""By its own signature, which pydantic's hides from mypy."""


def _is_below(path: str, folder: str) -> bool:
    """Segment by segment: a value may hold a slash that is escaped, behind its field's name."""
    segments = path.removeprefix(f"{folder}/").split("/")
    plain = path.startswith(f"{folder}/") and path.isascii() and path.isprintable() and len(path) < len(folder) + 1_100
    return plain and not {".", "..", ""} & set(segments) and all(len(segment) <= 255 for segment in segments)
