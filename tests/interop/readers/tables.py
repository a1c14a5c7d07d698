"""The tables that every engine reads: each written by a stream that crashes on its way and is replayed."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, DoubleType, LongType, NestedField, StringType

from lakesink_catalog.commit.evolution import evolve
from lakesink_catalog.connect.catalog import EMBEDDED_NAME
from lakesink_catalog.failpoints import VARIABLE, FailpointReached
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from tests.interop.readers.kinds import BY_ITSELF, SCHEMA, TIMES, TRANSFORMS, arrow, partitioned_by, rows, time_rows
from tests.readers.evolution import Step, brought, make
from tests.readers.lake import SINK, Lake, StreamedTable
from tests.readers.random_streams import in_pieces
from tests.writer.random_tables import ROW

Rows = list[dict[str, Any]]
CRASHES = ("before-prepared", "after-prepared", "after-commit")
"""Batch n dies here: it is written again, recovered, and found in the table."""

SMALL_FILES = {"write.target-file-size-bytes": "1", "write.parquet.row-group-size-bytes": "1"}
EVOLVED = Schema(
    NestedField(1, ROW, LongType(), required=True),
    NestedField(2, "c_int", SCHEMA.find_type("c_int"), required=False),
    NestedField(3, "c_float", SCHEMA.find_type("c_float"), required=False),
    NestedField(4, "c_decimal9", DecimalType(9, 2), required=False),
    NestedField(5, "c_string", StringType(), required=True),
    NestedField(6, "c_date", SCHEMA.find_type("c_date"), required=False),
)
EVOLUTION: Sequence[Sequence[Step]] = (
    (),
    (Step("widen", "c_int", LongType()), Step("add", "added", StringType()), Step("partition", "c_date", "year")),
    (
        Step("rename", "c_string", "renamed"),
        Step("widen", "c_float", DoubleType()),
        Step("widen", "c_decimal9", DecimalType(20, 2)),
        Step("relax", "renamed"),
        Step("partition", "added", "bucket[7]"),
    ),
    (Step("drop", "c_int"), Step("unpartition", "year of c_date")),
)

FOLLOWED: Sequence[Sequence[Step]] = (
    (),
    (Step("widen", "c_int", LongType()), Step("add", "added", StringType())),
    (Step("widen", "c_float", DoubleType()), Step("widen", "c_decimal9", DecimalType(20, 2))),
    (),
)
"""What the batches of a stream bring themselves."""

COUNTED = Schema(
    NestedField(1, ROW, LongType(), required=False), NestedField(2, "c_int", SCHEMA.find_type("c_int"), required=False)
)
DOCUMENTS: Sequence[Mapping[str, Any]] = (
    {},
    {"c_int": 3_000_000_000, "price": 1.5, "at": {"city": "Bonn", "zip": 53111}, "tags": ["x", None]},
    {"at": {"city": "Köln", "zip": None, "land": {"code": "DE", "eu": True}}, "steps": [[1], []]},
    {"price": 2, "steps": []},
)
"""What some documents of each batch have beside the row and a number."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A table as one batch left it.

    Attributes:
        number: The batch.
        snapshot_id: Its snapshot.
        tag: Its audit tag.
        schema: That it was committed with.
        rows: All rows in the table then, as Arrow's `to_pylist` has them.
    """

    number: int
    snapshot_id: int
    tag: str
    schema: Schema
    rows: Rows


@dataclass(frozen=True, slots=True)
class Told:
    """A table, and what must be in it.

    Attributes:
        name: Its name in the namespace ``demo``.
        streamed: The table.
        batches: Of its stream, oldest first.
        head: As the last one of them, in the table's present schema.
    """

    name: str
    streamed: StreamedTable
    batches: list[Batch]
    head: Batch

    def load(self) -> Table:
        return self.streamed.load()


@dataclass(slots=True)
class Writing:
    """A table on its way."""

    streamed: StreamedTable
    told: list[dict[int, Any]] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)

    def add(self, new: Sequence[Mapping[str, Any]], schema: Schema | None = None) -> None:
        """The next batch, by two tasks, through its crash. Its rows have the schema, or the table's."""
        schema = schema or self.streamed.load().schema()
        self._run(arrow(schema, new), new, schema)

    def add_documents(self, new: Sequence[Mapping[str, Any]]) -> None:
        """The same with JSON documents, which the table follows."""
        self._run(pa.table({"value": [json.dumps(row) for row in new]}), new, None)

    def _run(self, data: pa.Table, new: Sequence[Mapping[str, Any]], schema: Schema | None) -> None:
        half = data.num_rows // 2
        tasks = [in_pieces(data.slice(0, half)), in_pieces(data.slice(half))]
        number = len(self.batches)
        with crash(CRASHES[number] if number < len(CRASHES) else None, number):
            self.streamed.run(number, tasks, data.schema)
        replayed = self.streamed.run(number, tasks, data.schema)
        assert isinstance(replayed, Committed | AlreadyCommitted)
        schema = schema or self.streamed.load().schema()
        ids = {column.name: column.field_id for column in schema.fields}
        self.told += [{ids[name]: value for name, value in row.items()} for row in new]
        assert replayed.snapshot_id is not None
        tag = SinkKey(SINK).audit_tag(number)
        self.batches.append(Batch(number, replayed.snapshot_id, tag, schema, self.rows(schema)))

    def rows(self, schema: Schema) -> Rows:
        """All of them under a schema's names and types."""
        named = [{column.name: row.get(column.field_id) for column in schema.fields} for row in self.told]
        found: Rows = arrow(schema, named).to_pylist()
        return found

    def done(self) -> Told:
        schema, last = self.streamed.load().schema(), self.batches[-1]
        head = Batch(last.number, last.snapshot_id, last.tag, schema, self.rows(schema))
        return Told(self.streamed.name.removeprefix("demo."), self.streamed, self.batches, head)


@contextmanager
def crash(failpoint: str | None, number: int) -> Iterator[None]:
    """The driver dies there; its batch is not finished as far as anybody knows."""
    if failpoint is None:
        yield
        return
    os.environ[VARIABLE] = f"{failpoint}@{number}=raise"
    try:
        yield
    except FailpointReached:
        return
    finally:
        del os.environ[VARIABLE]
    raise AssertionError(f"{failpoint} was not reached")


def all_tables(home: Path) -> dict[str, Told]:
    """Every table, in the embedded catalog of a home."""
    lake = Lake(home, EMBEDDED_NAME)
    home.mkdir(parents=True, exist_ok=True)
    found = [streamed(lake, "kinds", SCHEMA, rows), streamed(lake, "times", TIMES, time_rows)]
    found += [evolved(lake), followed(lake), documents(lake)]
    for name, columns in BY_ITSELF.items():
        found.append(streamed(lake, name, SCHEMA, rows, partitioned_by("identity", columns)))
    for transform in TRANSFORMS:
        name = f"by_{transform.partition('[')[0]}"
        found.append(streamed(lake, name, SCHEMA, rows, partitioned_by(transform)))
    return {told.name: told for told in found}


def streamed(
    lake: Lake,
    name: str,
    schema: Schema,
    some: Callable[[int], Rows],
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
) -> Told:
    """A table of one schema and spec, three batches long."""
    writing = Writing(new(lake, name, schema, spec))
    for _ in CRASHES:
        writing.add(some(len(writing.told)))
    return writing.done()


def evolved(lake: Lake) -> Told:
    """A table whose schema and spec change between its batches."""
    writing = Writing(new(lake, "evolved", EVOLVED, UNPARTITIONED_PARTITION_SPEC))
    for steps in EVOLUTION:
        for step in steps:
            make(writing.streamed.load(), step)
        schema = writing.streamed.load().schema()
        writing.add([_fitting(row, schema) for row in rows(len(writing.told), 7)])
    return writing.done()


def followed(lake: Lake) -> Told:
    """A table that follows the columns of its stream, and whose partition column becomes wider."""
    writing = Writing(new(lake, "followed", EVOLVED, partitioned_by("identity", ["c_int"], EVOLVED)))
    writing.streamed.options = {**writing.streamed.options, "schema_evolution": "widen"}
    for steps in FOLLOWED:
        table = writing.streamed.load()
        for change in filter(None, map(brought, steps)):
            table = evolve(table, change).table
        writing.add([_fitting(row, table.schema()) for row in rows(len(writing.told), 7)], table.schema())
    return writing.done()


def documents(lake: Lake) -> Told:
    """A table that follows the keys of JSON documents: half of the documents of a batch have them."""
    writing = Writing(new(lake, "documents", COUNTED, UNPARTITIONED_PARTITION_SPEC))
    writing.streamed.options = {**writing.streamed.options, "decode": "json", "schema_evolution": "widen"}
    for keys in DOCUMENTS:
        first = len(writing.told)
        writing.add_documents([{ROW: at, "c_int": at, **(keys if at % 2 else {})} for at in range(first, first + 7)])
    return writing.done()


def _fitting(row: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    text = row["c_string"] or "none"
    known = {**row, "c_string": text, "renamed": text, "added": f"{text} added"}
    return {column.name: known[column.name] for column in schema.fields}


def new(lake: Lake, name: str, schema: Schema, spec: PartitionSpec) -> StreamedTable:
    table = lake.new_table(schema, spec, SMALL_FILES, name)
    table.buffer_bytes, table.options = 200, {"tag_every": 1}
    return table
