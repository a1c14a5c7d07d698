"""Values of files in the columns that a query reads: exact at their extremes, by field id, and never narrowed."""

import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakesink.read.file_rows import OPEN_COST_BYTES, PART_BYTES, RowsFile, RowsPart, divided
from lakesink.read.values import readable_schema, unknown_columns, unreadable_columns
from lakesink.rows.schema import Struct, arrow_schema, parse_schema
from lakesink_protocol.errors import WriteError

MOST = 2**63 - 1
ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
SCALARS: list[tuple[IcebergType, list[Any]]] = [
    (LongType(), [MOST, -MOST - 1, 0]),
    (IntegerType(), [2**31 - 1, -(2**31), 0]),
    (BooleanType(), [True, False]),
    (DoubleType(), [-0.0, 1.7976931348623157e308, 5e-324, float("inf"), float("-inf")]),
    (FloatType(), [-0.0, 2.0**127]),
    (
        DecimalType(38, 18),
        [Decimal("9" * 20 + "." + "9" * 18), Decimal("-" + "9" * 20 + "." + "9" * 18), Decimal("0E-18")],
    ),
    (StringType(), ["", "a\x00b", "Ünï\U0001f600", "x" * 100_000]),
    (BinaryType(), [b"", b"\x00\xff", b"x" * 100_000]),
    (FixedType(3), [b"\x00\x01\xff"]),
    (DateType(), [date.min, date.max, date(1969, 12, 31)]),
    (TimestampType(), [datetime.min, datetime.max, datetime(1969, 12, 31, 23, 59, 59, 999_999)]),  # noqa: DTZ001, DTZ901
    (TimestamptzType(), [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]),
    (UUIDType(), [ID, uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)]),
]


def parsed(*fields: NestedField) -> tuple[Struct, str]:
    text = Schema(*fields).model_dump_json()
    return parse_schema(text), text


def written(folder: Path, schema: Struct, columns: dict[str, list[Any]]) -> RowsFile:
    """A file as a task writes it."""
    path = folder / f"{uuid.uuid4()}.parquet"
    table = pa.table(columns, schema=arrow_schema(schema))
    pq.write_table(table, path, store_schema=False, row_group_size=3)
    return RowsFile(str(path), table.num_rows, path.stat().st_size, "batch 7")


def read(file: RowsFile, schema_json: str) -> list[dict[str, Any]]:
    return [_in_utc(row) for batch in RowsPart([file], schema_json, {}, None).rows() for row in batch.to_pylist()]


def _in_utc(value: Any) -> Any:
    """Without the class that PyArrow has for a zone."""
    match value:
        case dict():
            return {name: _in_utc(part) for name, part in value.items()}
        case list() | tuple():
            return type(value)(map(_in_utc, value))
        case datetime():
            return value if value.tzinfo is None else value.replace(tzinfo=UTC)
    return value


def as_spark_has(value: Any) -> Any:
    return str(value) if isinstance(value, uuid.UUID) else value


def stored(value: Any) -> Any:
    return value.bytes if isinstance(value, uuid.UUID) else value


@pytest.mark.parametrize(("kind", "values"), SCALARS, ids=[str(kind) for kind, _ in SCALARS])
def test_values_are_the_ones_that_were_written(tmp_path: Path, kind: IcebergType, values: list[Any]) -> None:
    schema, text = parsed(NestedField(1, "v", kind))
    given = [*values, None]
    file = written(tmp_path, schema, {"v": [stored(value) for value in given]})
    assert repr([row["v"] for row in read(file, text)]) == repr([as_spark_has(value) for value in given])


@pytest.mark.parametrize(("kind", "values"), SCALARS, ids=[str(kind) for kind, _ in SCALARS])
def test_nested_values_are_the_ones_that_were_written(tmp_path: Path, kind: IcebergType, values: list[Any]) -> None:
    inner = StructType(NestedField(10, "x", kind), NestedField(11, "n", LongType()))
    schema, text = parsed(
        NestedField(1, "l", ListType(2, kind, element_required=False)),
        NestedField(3, "m", MapType(4, StringType(), 5, inner, value_required=False)),
        NestedField(
            6,
            "s",
            StructType(
                NestedField(7, "ll", ListType(8, ListType(9, kind, element_required=False), element_required=False))
            ),
        ),
    )

    def rows(convert: Callable[[Any], Any]) -> dict[str, list[Any]]:
        found = [convert(value) for value in [*values, None]]
        return {
            "l": [found, None, [], found[:1]],
            "m": [[(str(at), {"x": value, "n": at}) for at, value in enumerate(found)], None, [], [("k", None)]],
            "s": [{"ll": [found, None, []]}, None, {"ll": None}, {"ll": [[found[0]]]}],
        }

    wanted = rows(as_spark_has)
    got = read(written(tmp_path, schema, rows(stored)), text)
    assert repr({name: [row[name] for row in got] for name in wanted}) == repr(wanted)


def test_columns_are_found_by_id_and_widened(tmp_path: Path) -> None:
    old, _ = parsed(
        NestedField(1, "a", IntegerType()),
        NestedField(2, "dropped", StringType()),
        NestedField(3, "f", FloatType()),
        NestedField(4, "d", DecimalType(9, 2)),
        NestedField(
            5, "s", StructType(NestedField(6, "x", IntegerType(), required=True), NestedField(7, "y", StringType()))
        ),
        NestedField(8, "l", ListType(9, IntegerType(), element_required=True)),
    )
    row = {
        "a": 2**31 - 1,
        "dropped": "gone",
        "f": 0.5,
        "d": Decimal("1234567.89"),
        "s": {"x": -1, "y": "y"},
        "l": [1, 2],
    }
    file = written(tmp_path, old, {name: [value, None] for name, value in row.items()})
    _, text = parsed(
        NestedField(4, "d", DecimalType(38, 2)),
        NestedField(20, "new", ListType(21, StringType(), element_required=False)),
        NestedField(2000, "dropped", LongType()),
        NestedField(1, "renamed", LongType()),
        NestedField(
            5,
            "s",
            StructType(
                NestedField(7, "why", StringType()), NestedField(22, "z", DateType()), NestedField(6, "x", LongType())
            ),
        ),
        NestedField(3, "f", DoubleType()),
        NestedField(8, "l", ListType(9, LongType(), element_required=False)),
    )
    first, second = read(file, text)
    nested = {"why": "y", "z": None, "x": -1}
    whole = {"d": row["d"], "new": None, "dropped": None, "renamed": 2**31 - 1, "s": nested, "f": 0.5, "l": [1, 2]}
    assert first == whole
    assert second == dict.fromkeys(whole)


def test_files_of_several_schemas_make_one_arrow_stream(tmp_path: Path) -> None:
    before = NestedField(1, "s", StructType(NestedField(2, "x", LongType(), required=True)), required=True)
    after = NestedField(1, "t", StructType(NestedField(2, "y", LongType()), NestedField(3, "z", LongType())))
    files = [
        written(tmp_path, parsed(before)[0], {"s": [{"x": 1}]}),
        written(tmp_path, parsed(after)[0], {"t": [{"y": 2, "z": 3}]}),
    ]
    schema, text = parsed(after)
    batches = list(RowsPart(files, text, {}, None).rows())
    assert [batch.schema for batch in batches] == [readable_schema(schema)] * 2
    assert pa.Table.from_batches(batches).to_pylist() == [{"t": {"y": 1, "z": None}}, {"t": {"y": 2, "z": 3}}]


def test_a_column_that_the_reader_does_not_know_is_named() -> None:
    reader, _ = parsed(NestedField(1, "a", IntegerType()), NestedField(2, "d", DecimalType(9, 2)))
    now, _ = parsed(
        NestedField(1, "a", LongType()),
        NestedField(2, "d", DecimalType(10, 2)),
        NestedField(3, "s", StructType(NestedField(4, "x", LongType()))),
    )
    assert unknown_columns(reader, now, now) == ["a", "d", "s", "s.x"]
    assert unknown_columns(now, reader, now) == []
    assert unknown_columns(reader, now, reader) == ["a", "d"]


def test_times_are_no_type_of_spark() -> None:
    schema, _ = parsed(
        NestedField(1, "s", StructType(NestedField(2, "at", TimeType()))), NestedField(3, "n", LongType())
    )
    assert list(unreadable_columns(schema)) == ["s.at"]


def test_a_file_that_is_gone_or_another_is_refused(tmp_path: Path) -> None:
    schema, text = parsed(NestedField(1, "v", LongType()))
    file = written(tmp_path, schema, {"v": [1, 2]})
    with pytest.raises(WriteError, match=r"\[LAKESINK_READ_FILE_UNREADABLE\].*its footer has 2 rows"):
        read(RowsFile(file.path, 3, file.size_bytes, "batch 7"), text)
    Path(file.path).write_bytes(b"PAR1")
    with pytest.raises(WriteError, match=r"\[LAKESINK_READ_FILE_UNREADABLE\]"):
        read(file, text)
    Path(file.path).unlink()
    with pytest.raises(WriteError, match=r"\[LAKESINK_READ_BATCH_GONE\] A data file of batch 7"):
        read(file, text)


def test_small_files_share_a_task_and_large_ones_do_not() -> None:
    small = [RowsFile(f"{number}", 1, 1000, "") for number in range(40)]
    large = [RowsFile("large", 1, 2 * PART_BYTES, "")] * 2
    parts = divided([*small, *large])
    assert [file for part in parts for file in part] == [*small, *large]
    assert all(len(part) * OPEN_COST_BYTES < PART_BYTES + 2 * OPEN_COST_BYTES for part in parts)
    assert [len(part) for part in parts][-2:] == [1, 1]
