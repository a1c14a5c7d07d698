"""Every type of Spark's either has an exact place in a table, or is refused by name before anything is made."""

import re
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as kinds
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    CharType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

from lakesink.spark.rows.frame_schema import stored_schema
from lakesink_catalog.spark_types import sql_type
from lakesink_catalog.tables.arrow_schema import iceberg_schema
from lakesink_protocol.errors import WriteError


class Vector(UserDefinedType):
    """A type of a library's own, kept by Spark as an array."""

    @classmethod
    def sqlType(cls) -> DataType:  # noqa: N802 - PySpark's
        return ArrayType(DoubleType(), containsNull=False)


REFUSED = {
    "VARIANT": VariantType(),
    "INTERVAL": CalendarIntervalType(),
    "INTERVAL DAY TO SECOND": DayTimeIntervalType(),
    "INTERVAL YEAR TO MONTH": YearMonthIntervalType(),
    "Vector (user-defined)": Vector(),
    "STRUCT without fields": StructType([]),
    **{f"{name[:-4].upper()}(4326)": getattr(kinds, name)(4326) for name in ("GeometryType", "GeographyType")},
}


def in_struct(kind: DataType) -> StructType:
    return StructType().add("row", StructType().add("c", kind))


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize(
    ("around", "column"),
    [
        (lambda kind: StructType().add("c", kind), "c"),
        (in_struct, "row.c"),
        (lambda kind: StructType().add("c", ArrayType(kind)), "c.element"),
        (lambda kind: StructType().add("c", MapType(StringType(), ArrayType(kind))), "c.value.element"),
    ],
)
def test_a_type_without_an_exact_place_is_refused_by_name_at_any_depth(name: str, around: Any, column: str) -> None:
    with pytest.raises(WriteError, match="LAKESINK_TYPE_UNSUPPORTED") as refused:
        stored_schema(around(REFUSED[name]))
    assert f"Column '{column}' has type {name}, which a table or a file cannot store exactly" in refused.value.what


@pytest.mark.parametrize("contains_null", [True, False])
def test_an_array_of_nothing_is_refused_by_name(contains_null: bool) -> None:  # noqa: FBT001 - a parameter
    with pytest.raises(WriteError, match=r"LAKESINK_TYPE_UNSUPPORTED.*'c\.element' has type VOID"):
        stored_schema(StructType().add("c", ArrayType(NullType(), contains_null)))


def test_a_refusal_shows_an_expression_that_can_be_copied() -> None:
    with pytest.raises(WriteError) as refused:
        stored_schema(StructType().add("pay load", VariantType()))
    assert "to_json(`pay load`) AS `pay load`" in refused.value.action


def test_char_and_varchar_are_strings_and_other_types_stay() -> None:
    schema = (
        StructType()
        .add("a", CharType(3))
        .add("b", ArrayType(VarcharType(9)))
        .add("c", MapType(CharType(1), StringType()))
    )
    assert stored_schema(schema).types == [pa.string(), pa.list_(pa.string()), pa.map_(pa.string(), pa.string())]


def test_no_type_of_sparks_is_passed_over_here() -> None:
    """A type that a new Spark brings is to be decided on: accepted exactly, or refused by name."""
    decided = {
        *("Array", "Binary", "Boolean", "Byte", "Char", "Date", "Decimal", "Double", "Float", "Integer", "Long", "Map"),
        *("Null", "Short", "String", "Struct", "Time", "Timestamp", "TimestampNTZ", "Varchar"),
        *(
            "CalendarInterval",
            "DayTimeInterval",
            "Geography",
            "Geometry",
            "UserDefined",
            "Variant",
            "YearMonthInterval",
        ),
    }
    abstract = {
        "AnsiInterval",
        "AnyTime",
        "Atomic",
        "Data",
        "Datetime",
        "Fractional",
        "Integral",
        "Numeric",
        "Spatial",
        "",
    }
    found = {name.removesuffix("Type") for name in dir(kinds) if re.fullmatch(r"[A-Z]\w*Type|Type", name)}
    assert found - abstract == decided


def test_time_makes_no_table_for_icebergs_spark_cannot_read_it() -> None:
    with pytest.raises(WriteError, match="Column 't' is of type TIME, which Iceberg's Spark cannot read"):
        iceberg_schema(stored_schema(StructType().add("t", kinds.TimeType())))


def test_types_are_spelled_as_spark_spells_them() -> None:
    schema = (
        StructType()
        .add("zoned", TimestampType())
        .add("reading", TimestampNTZType())
        .add("price", DecimalType(9, 2))
        .add("parts", ArrayType(StructType().add("id", IntegerType()).add("odd name", BinaryType())))
        .add("counts", MapType(StringType(), IntegerType()))
    )
    assert [sql_type(kind) for kind in stored_schema(schema).types] == [
        "TIMESTAMP",
        "TIMESTAMP_NTZ",
        "DECIMAL(9,2)",
        "ARRAY<STRUCT<id: INT, `odd name`: BINARY>>",
        "MAP<STRING, INT>",
    ]
