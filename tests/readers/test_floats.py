"""Rows with NaN or a zero are found by every predicate that they fulfil: no footer statistics speak of such columns."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, FloatType, ListType, LongType, MapType, NestedField, StructType

from lakesink.sinks.staged.parts import PartsWriter
from lakesink_protocol.change import ContentFile
from testkit.commits import add
from testkit.tasks import exactly, footer, local, new_table, plan_for, write
from tests.readers.predicates import Predicate

NAN = math.nan
FILES = [(0.0, 0.0), (0.5, NAN), (0.0, NAN), (-1.5, 2.0), (NAN, NAN), (None, NAN)]
EVERY_ROW = [value for values in FILES for value in values]


@pytest.fixture(scope="module", params=[DoubleType(), FloatType()], ids=str)
def streamed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("floats")
    kind = pa.float64() if isinstance(request.param, DoubleType) else pa.float32()
    with new_table(folder, Schema(NestedField(1, "x", request.param))) as table:
        plan = plan_for(table.schema(), folder)
        batches = [pa.RecordBatch.from_pydict({"x": pa.array(values, kind)}) for values in FILES]
        files = [file for batch in batches for file in write(plan, [batch]).files]
        add(table, files)
        yield table, files


def values(found: pa.Table) -> list[Any]:
    return sorted(map(str, found["x"].to_pylist()))


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        (Predicate(("x",), "in", (0.0, 1.5)), [0.0, 0.0, 0.0]),
        (Predicate(("x",), "is nan"), [NAN] * 5),
        (Predicate(("x",), ">", 0.7), [2.0]),
        (Predicate(("x",), "<=", 0.5), [0.0, 0.0, 0.5, 0.0, -1.5]),
    ],
    ids=str,
)
def test_pyiceberg_finds_every_row(streamed: Any, condition: Predicate, rows: list[float]) -> None:
    table: Table = streamed[0]
    assert values(table.scan(row_filter=condition.expression).to_arrow()) == sorted(map(str, rows))


@pytest.mark.parametrize("condition", ["x in (0.0, 1.5)", "isnan(x)", "x > 0.7", "x <= 0.5", "x = 0.0", "x is null"])
def test_duckdb_finds_in_files_what_it_finds_in_memory(streamed: Any, condition: str) -> None:
    files: list[ContentFile] = streamed[1]
    with duckdb.connect() as connection:
        in_files = connection.read_parquet([local(file.path) for file in files], hive_partitioning=False)
        in_memory = connection.from_arrow(pa.table({"x": pa.array(EVERY_ROW, in_files.to_arrow_table()["x"].type)}))
        found, wanted = (one.filter(condition).to_arrow_table() for one in (in_files, in_memory))
        assert values(found) == values(wanted)


NESTED = Schema(
    NestedField(1, "x", DoubleType()),
    NestedField(2, "s", StructType(NestedField(3, "f", FloatType()), NestedField(4, "n", LongType()))),
    NestedField(5, "l", ListType(6, DoubleType(), element_required=False)),
    NestedField(7, "m", MapType(8, FloatType(), 9, DoubleType(), value_required=False)),
)
ROWS = [
    {"x": 1.0, "s": {"f": NAN, "n": 1}, "l": [1.0, NAN, None], "m": [(0.5, None)]},
    {"x": NAN, "s": None, "l": [], "m": None},
    {"x": None, "s": {"f": -0.0, "n": None}, "l": None, "m": [(NAN, 2.0), (1.0, 3.0)]},
]
PARQUET_ROWS = pa.schema(
    [
        ("x", pa.float64()),
        ("s", pa.struct([("f", pa.float32()), ("n", pa.int64())])),
        ("l", pa.list_(pa.float64())),
        ("m", pa.map_(pa.float32(), pa.float64())),
    ]
)


def with_statistics(found: pq.FileMetaData) -> set[str]:
    group = found.row_group(0)
    columns = (group.column(at) for at in range(found.num_columns))
    return {column.path_in_schema for column in columns if column.is_stats_set}


def test_no_footer_speaks_of_floating_point_columns_and_the_manifest_speaks_of_them_exactly(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pylist(ROWS, schema=PARQUET_ROWS)
    [file] = write(plan_for(NESTED, tmp_path), [batch, batch]).files
    assert with_statistics(footer(file)) == {"s.n"}
    assert file.value_counts == {1: 6, 3: 6, 4: 6, 6: 10, 8: 8, 9: 8}
    assert file.null_value_counts == {1: 2, 3: 2, 4: 4, 6: 6, 8: 2, 9: 4}
    assert file.nan_value_counts == {1: 2, 3: 2}
    bounds = {number: (file.lower_bounds.get(number), file.upper_bounds.get(number)) for number in (1, 3)}
    one, zero, minus_zero = b"\0\0\0\0\0\0\xf0?", b"\0\0\0\0", b"\0\0\0\x80"
    assert exactly(bounds) == exactly({1: (one, one), 3: (minus_zero, zero)})


def test_no_footer_of_a_directory_speaks_of_floating_point_columns(tmp_path: Path) -> None:
    writer = PartsWriter(str(tmp_path), "events-7", 7, "zstd", 1 << 20)
    writer.write(0, iter([pa.RecordBatch.from_pylist(ROWS, schema=PARQUET_ROWS)]))
    [part] = tmp_path.glob("*.parquet")
    assert with_statistics(pq.read_metadata(part)) == {"s.n"}
