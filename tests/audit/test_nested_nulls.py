"""`lakesink as-of --read` and `lakesink diff` show NULL where the data file has NULL, at any depth."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, LongType, MapType, NestedField, StringType, StructType

from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink_tools.cli.rows import documents
from testkit.builders import Lake, Stream
from tests.audit.terminal import found, terminal

INNER = StructType(NestedField(10, "a", LongType()))
LISTS = ListType(11, INNER, element_required=False)
MAPS = MapType(12, StringType(), 13, INNER, value_required=False)
DEEP = StructType(NestedField(20, "l", LISTS), NestedField(21, "m", MAPS))
VALUES: list[tuple[str, IcebergType, list[Any]]] = [
    ("list", LISTS, [None, [], [None], [{"a": None}, {"a": 1}]]),
    ("map", MAPS, [None, [], [("k", None)], [("k", {"a": 1})]]),
    ("struct", INNER, [None, {"a": None}, {"a": 1}, None]),
    ("list of numbers", ListType(30, LongType(), element_required=False), [None, [], [None], [1]]),
    (
        "map of numbers",
        MapType(31, StringType(), 32, LongType(), value_required=False),
        [None, [], [("k", None)], None],
    ),
    (
        "struct of both",
        DEEP,
        [None, {"l": None, "m": None}, {"l": [], "m": []}, {"l": [None, {"a": 1}], "m": [("k", None)]}],
    ),
    (
        "list of both",
        ListType(33, DEEP, element_required=False),
        [[{"l": None, "m": []}, None], [{"l": [], "m": None}], None, []],
    ),
]


@dataclass(slots=True)
class OfColumn(Stream):
    """A stream of ids and values of one column."""

    values: tuple[pa.Array, ...] = ()

    def sink(self, **options: Any) -> IcebergSink:
        sink = Stream.sink(self, **options)
        sink.schema = self.rows(0, range(0))[0].schema
        return sink

    def rows(self, told: int, positions: range) -> list[pa.RecordBatch]:  # noqa: ARG002 - the same for every batch
        return [pa.RecordBatch.from_pydict({"id": pa.array(range(len(self.values[0]))), "c": self.values[0]})]


@pytest.mark.parametrize(("kind", "values"), [it[1:] for it in VALUES], ids=[it[0] for it in VALUES])
def test_what_is_null_in_the_file_is_null_for_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: IcebergType, values: list[Any]
) -> None:
    lake = Lake.make(tmp_path, schema=Schema(NestedField(1, "id", LongType()), NestedField(2, "c", kind)))
    arrow = lake.table().schema().as_arrow().field("c").type
    OfColumn(lake, values=(pa.array(values, arrow),)).run(0)
    [task] = lake.table().scan().plan_files()
    stored = pq.read_table(task.file.file_path.removeprefix("file://"))
    assert [row["c"] for row in stored.to_pylist()] == values
    run = terminal(lake, monkeypatch)
    read = found(run("as-of", "--batch", 0, "--read", "--output", "json"))["read"]
    assert read == documents(stored)
    differ = found(run("diff", "--from-batch", -1, "--to-batch", 0, "--limit", 9, "--output", "json"))
    assert differ["sample"] == documents(stored)
