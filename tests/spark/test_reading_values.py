"""Values at their extremes go from a table through Spark as they are, in every zone of the session."""

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from lakesink.rows.schema import arrow_schema, parse_schema
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.spark.source.data_source import LakesinkDataSource
from lakesink_catalog.connect.catalog import connect
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.identity import SinkKey, stream_batch
from lakesink_protocol.votes import Votes
from tests.spark.adapters import embedded_catalog
from tests.spark.streams import run

pytestmark = pytest.mark.usefixtures("home")
TABLE = "demo.extremes"
MOST = 2**63 - 1
SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "amount", DecimalType(38, 9)),
    NestedField(3, "text", StringType()),
    NestedField(4, "raw", BinaryType()),
    NestedField(5, "fixed", FixedType(2)),
    NestedField(6, "id", UUIDType()),
    NestedField(7, "day", DateType()),
    NestedField(8, "local", TimestampType()),
    NestedField(9, "at", TimestamptzType()),
    NestedField(10, "x", DoubleType()),
    NestedField(11, "times", ListType(12, TimestamptzType(), element_required=False)),
    NestedField(13, "by", MapType(14, StringType(), 15, DecimalType(38, 0), value_required=False)),
    NestedField(16, "s", StructType(NestedField(17, "id", UUIDType()), NestedField(18, "local", TimestampType()))),
)
UUID_TEXT = "00112233-4455-6677-8899-aabbccddeeff"
LARGE = Decimal("9" * 38)
ROWS: list[dict[str, Any]] = [
    {
        "n": MOST,
        "amount": Decimal("9" * 29 + "." + "9" * 9),
        "text": "a\x00b\U0001f600" + "x" * 70_000,
        "raw": b"\x00\xff",
        "fixed": b"\xff\x00",
        "id": UUID_TEXT,
        "day": date.max,
        "local": MOST,
        "at": MOST,
        "x": -0.0,
        "times": [MOST, None, -MOST - 1],
        "by": [("", LARGE), ("k", None), ("m", Decimal("-" + "9" * 38))],
        "s": {"id": UUID_TEXT, "local": -1},
    },
    {
        "n": -MOST - 1,
        "amount": Decimal("-" + "9" * 29 + "." + "9" * 9),
        "text": "",
        "raw": b"",
        "fixed": b"\x00\x00",
        "id": "00000000-0000-0000-0000-000000000000",
        "day": date.min,
        "local": -MOST - 1,
        "at": -MOST - 1,
        "x": float("-inf"),
        "times": [],
        "by": [],
        "s": {"id": None, "local": None},
    },
    dict.fromkeys(field.name for field in SCHEMA.fields),
]


def as_stored(value: Any) -> Any:
    """UUIDs as the sixteen bytes that they are in a file."""
    match value:
        case str() if len(value) == len(UUID_TEXT) and value.count("-") == UUID_TEXT.count("-"):
            return bytes.fromhex(value.replace("-", ""))
        case dict():
            return {name: as_stored(part) for name, part in value.items()}
    return value


@pytest.fixture
def table(home: Path) -> None:  # noqa: ARG001 - where the catalog is
    """The table, whose only batch has the rows."""
    catalog = connect()
    catalog.create_namespace_if_not_exists("demo")
    created = catalog.create_table(TABLE, SCHEMA, properties={"format-version": "2"})
    schema = pa.schema(
        [field.remove_metadata() for field in arrow_schema(parse_schema(created.schema().model_dump_json()))]
    )
    rows = pa.RecordBatch.from_pylist([as_stored(row) for row in ROWS], schema=schema)
    settings = Settings.parse({"sink_id": "bronze", "checkpoint": "/nowhere"})
    sink = IcebergSink(TABLE, SinkKey("bronze"), connect, settings, rows.schema)
    batch = stream_batch(0, "q", start=[0], end=[1])
    run_batch(
        batch,
        [sink],
        lambda writers: Votes.in_order({name: [one.write(0, iter([rows]))] for name, one in writers.items()}),
    )


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_values_are_those_that_were_written(spark: Any, zone: str, tmp_path: Path) -> None:
    spark.dataSource.register(LakesinkDataSource)
    found: list[pa.Table] = []
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = spark.readStream.format("lakesink").options(**(embedded_catalog() | {"table": TABLE})).load()
        # Spark's own rows of Java do not hold times at the ends of 64 bits; Arrow does
        query = rows.writeStream.foreachBatch(lambda batch, _: found.append(batch.toArrow()))
        run(query.option("checkpointLocation", str(tmp_path / "ck")))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert exact(pa.concat_tables(found)) == exact_rows()


def exact(found: pa.Table) -> list[str]:
    """Each row as text, with times as the microseconds that they are."""
    columns = {name: _plain(found.column(name).combine_chunks()) for name in found.column_names}
    return sorted(repr({name: columns[name][row] for name in columns}) for row in range(found.num_rows))


def exact_rows() -> list[str]:
    return sorted(repr(row) for row in ROWS)


def _plain(values: pa.Array) -> list[Any]:
    kind = values.type
    if pa.types.is_timestamp(kind):
        return list(values.cast(pa.int64()).to_pylist())
    if pa.types.is_list(kind):
        parts = _plain(values.values)
        starts = values.offsets.to_pylist()
        return [parts[starts[row] : starts[row + 1]] if values[row].is_valid else None for row in range(len(values))]
    if pa.types.is_struct(kind):
        fields = [field.name for field in kind]
        parts_of = {name: _plain(values.field(name)) for name in fields}
        return [
            {name: parts_of[name][row] for name in fields} if values[row].is_valid else None
            for row in range(len(values))
        ]
    return list(values.to_pylist())
