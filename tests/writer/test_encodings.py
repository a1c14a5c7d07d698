"""Every Iceberg type has the physical form in Parquet that its spec asks for, wherever it is nested."""

from pathlib import Path

import pyarrow as pa
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

from lakesink.task.task import check_columns
from lakesink_protocol.errors import WriteError
from testkit.tasks import footer, plan_for, write

MICROS = "timeUnit=microseconds, is_from_converted_type=false, force_set_converted_type=false"
PHYSICAL: list[tuple[IcebergType, str, int, str]] = [
    (BooleanType(), "BOOLEAN", 0, "None"),
    (IntegerType(), "INT32", 0, "None"),
    (LongType(), "INT64", 0, "None"),
    (FloatType(), "FLOAT", 0, "None"),
    (DoubleType(), "DOUBLE", 0, "None"),
    (DecimalType(1, 0), "INT32", 0, "Decimal(precision=1, scale=0)"),
    (DecimalType(9, 2), "INT32", 0, "Decimal(precision=9, scale=2)"),
    (DecimalType(10, 2), "INT64", 0, "Decimal(precision=10, scale=2)"),
    (DecimalType(18, 2), "INT64", 0, "Decimal(precision=18, scale=2)"),
    (DecimalType(19, 2), "FIXED_LEN_BYTE_ARRAY", 9, "Decimal(precision=19, scale=2)"),
    (DecimalType(38, 2), "FIXED_LEN_BYTE_ARRAY", 16, "Decimal(precision=38, scale=2)"),
    (DateType(), "INT32", 0, "Date"),
    (TimeType(), "INT64", 0, "Time(isAdjustedToUTC=false, timeUnit=microseconds)"),
    (TimestampType(), "INT64", 0, f"Timestamp(isAdjustedToUTC=false, {MICROS})"),
    (TimestamptzType(), "INT64", 0, f"Timestamp(isAdjustedToUTC=true, {MICROS})"),
    (StringType(), "BYTE_ARRAY", 0, "String"),
    (UUIDType(), "FIXED_LEN_BYTE_ARRAY", 16, "UUID"),
    (FixedType(7), "FIXED_LEN_BYTE_ARRAY", 7, "None"),
    (BinaryType(), "BYTE_ARRAY", 0, "None"),
]


def nested(kind: IcebergType) -> Schema:
    return Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "c", kind),
        NestedField(3, "s", StructType(NestedField(4, "c", kind, required=True))),
        NestedField(5, "l", ListType(6, kind, element_required=True)),
        NestedField(7, "m", MapType(8, kind, 9, kind, value_required=False)),
    )


@pytest.mark.parametrize(("kind", "physical", "length", "logical"), PHYSICAL, ids=[str(case[0]) for case in PHYSICAL])
def test_a_type_has_its_physical_form_at_every_level(
    kind: IcebergType, physical: str, length: int, logical: str, tmp_path: Path
) -> None:
    [file] = write(plan_for(nested(kind), tmp_path), [pa.RecordBatch.from_pydict({"id": [1]})]).files
    schema = footer(file).schema
    columns = {schema.column(index).path: schema.column(index) for index in range(1, len(schema))}
    assert list(columns) == ["c", "s.c", "l.list.element", "m.key_value.key", "m.key_value.value"]
    for column in columns.values():
        assert (column.physical_type, column.length) == (physical, length)
        assert str(column.logical_type) == logical


@pytest.mark.parametrize("kind", ["timestamp_ns", "unknown", "variant", "geometry"])
def test_a_type_of_a_later_format_is_refused_by_name(kind: str) -> None:
    document = f'{{"type": "struct", "fields": [{{"id": 1, "name": "c", "required": false, "type": "{kind}"}}]}}'
    with pytest.raises(WriteError, match="LAKESINK_SCHEMA_MISMATCH") as caught:
        check_columns(pa.schema([]), plan_for(nested(LongType()), "/", schema_json=document))
    assert f"type {kind}" in caught.value.what


def test_a_struct_without_fields_is_refused_since_parquet_has_none() -> None:
    schema = Schema(NestedField(1, "s", StructType()))
    with pytest.raises(WriteError, match="struct without fields"):
        check_columns(pa.schema([]), plan_for(schema, "/"))
