"""One schema with every type of Iceberg's version 2, flat and nested, and rows at the edges of what the types hold.

`time` has a table of its own: Spark's Iceberg has no type for it, and refuses a whole table for one such column.
Dates and times stay within the years 1 to 9999, which every reader here can show.
"""

import math
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time
from decimal import Decimal
from itertools import cycle, islice
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
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
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.writer.random_tables import LOWEST_INT, LOWEST_LONG, ROW, Case

ROWS = 12
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001 - no zone, no zone
MOMENTS = [
    FIRST,
    datetime(1969, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001 - as above
    datetime(1970, 1, 1),  # noqa: DTZ001 - as above
    datetime(2024, 2, 29, 12, 30, 15, 123_456),  # noqa: DTZ001 - as above
    LAST,
]
LARGEST = Decimal("9" * 28 + "." + "9" * 10)
PRIMITIVES: Mapping[str, tuple[PrimitiveType, Sequence[Any]]] = {
    "c_boolean": (BooleanType(), [True, False]),
    "c_int": (IntegerType(), [LOWEST_INT, -1, 0, 1, 2**31 - 1]),
    "c_long": (LongType(), [LOWEST_LONG, -1, 0, 1, 2**53 + 1, 2**63 - 1]),
    "c_float": (FloatType(), [-math.inf, -1.5, -0.0, 0.0, 0.10000000149011612, math.inf, math.nan]),
    "c_double": (DoubleType(), [-math.inf, -1e308, -0.0, 0.0, 0.1, 5e-324, math.inf, math.nan]),
    "c_decimal9": (
        DecimalType(9, 2),
        [Decimal("-9999999.99"), Decimal("0.00"), Decimal("0.01"), Decimal("9999999.99")],
    ),
    "c_decimal18": (DecimalType(18, 4), [Decimal("-99999999999999.9999"), Decimal("1.2300"), Decimal("0.0000")]),
    "c_decimal38": (
        DecimalType(38, 10),
        [Decimal("9" * 28 + "." + "9" * 10), Decimal("-" + "9" * 28 + "." + "9" * 10)],
    ),
    "c_date": (DateType(), [moment.date() for moment in MOMENTS]),
    "c_timestamp": (TimestampType(), MOMENTS),
    "c_timestamptz": (TimestamptzType(), [moment.replace(tzinfo=UTC) for moment in MOMENTS]),
    "c_string": (StringType(), ["", "a", "it's", "é" * 9, "😀" * 17, "z" * 15 + "\U0010ffff" * 3, "%2F a/b"]),
    "c_uuid": (UUIDType(), [str(uuid.UUID(int=number)) for number in (0, 1, 2**127 - 1, 2**127, 2**128 - 1)]),
    "c_fixed": (FixedType(3), [b"\x00\x00\x00", b"abc", b"\x7f\xff\xff", b"\x80\x00\x00", b"\xff\xff\xff"]),
    "c_binary": (BinaryType(), [b"", b"\x00", b"a" * 16 + b"\xff", b"\xff" * 20]),
}
NESTED: Mapping[str, tuple[IcebergType, Sequence[Any]]] = {
    "n_struct": (
        StructType(
            NestedField(101, "at", TimestamptzType(), required=False),
            NestedField(
                102,
                "inner",
                StructType(NestedField(103, "amount", DecimalType(9, 2), required=False)),
                required=False,
            ),
        ),
        [
            {"at": MOMENTS[3].replace(tzinfo=UTC), "inner": {"amount": Decimal("1.50")}},
            {"at": None, "inner": {"amount": None}},
            {"at": None, "inner": None},
        ],
    ),
    "n_list": (ListType(110, LongType(), element_required=False), [[], [1, None, 2**63 - 1], [0]]),
    "n_list_of_structs": (
        ListType(120, StructType(NestedField(121, "name", StringType(), required=False)), element_required=False),
        [[{"name": "a"}, {"name": None}], []],
    ),
    "n_map": (MapType(130, StringType(), 131, DoubleType(), value_required=False), [[("k", 1.5), ("é", None)], []]),
    "n_map_by_number": (
        MapType(140, IntegerType(), 141, ListType(142, StringType(), element_required=False), value_required=False),
        [[(-1, ["a", None]), (7, [])], []],
    ),
}
SCHEMA = Schema(
    NestedField(1, ROW, LongType(), required=True),
    *(
        NestedField(number, name, kind, required=False)
        for number, (name, (kind, _)) in enumerate({**PRIMITIVES, **NESTED}.items(), start=2)
    ),
)
TIMES = Schema(NestedField(1, ROW, LongType(), required=True), NestedField(2, "c_time", TimeType(), required=False))
TRANSFORMS = ("bucket[7]", "truncate[3]", "year", "month", "day", "hour", "void")
FLOATS = ("c_float", "c_double")
BY_ITSELF: Mapping[str, Sequence[str]] = {
    "by_identity": [name for name in PRIMITIVES if name not in (*FLOATS, "c_fixed")],
    "by_floats": FLOATS,
    "by_fixed": ("c_fixed",),
}
"""Tables partitioned by columns as they are: those that some engine reads wrongly are apart."""


def rows(first: int, count: int = ROWS) -> list[dict[str, Any]]:
    """Rows from a number on: every column goes round its values at its own pace, and one row is all NULL."""
    values = {name: [*found, None] for name, (_, found) in {**PRIMITIVES, **NESTED}.items()}
    numbered = [
        {ROW: number, **{name: found[number % len(found)] for name, found in values.items()}}
        for number in range(first, first + count - 1)
    ]
    return [*numbered, {ROW: first + count - 1, **dict.fromkeys(values)}]


def time_rows(first: int, count: int = ROWS) -> list[dict[str, Any]]:
    """Rows of `TIMES`."""
    times = [time(0), time(12, 30, 15, 123_456), time(23, 59, 59, 999_999), time(0, 0, 0, 1), None]
    return [{ROW: first + place, "c_time": value} for place, value in enumerate(islice(cycle(times), count))]


def arrow(schema: Schema, told: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as they come from Spark."""
    return Case(schema, PartitionSpec(), [dict(row) for row in told]).arrow


def partitioned_by(transform: str, columns: Sequence[str] = (), schema: Schema = SCHEMA) -> PartitionSpec:
    """By every column that the transform takes but the number of the row, or by some."""
    parsed = parse_transform(transform)
    fields = [f for f in schema.fields if isinstance(f.field_type, PrimitiveType) and (f.name != ROW or columns)]
    able = [f for f in fields if parsed.can_transform(f.field_type) and (f.name in columns or not columns)]
    return PartitionSpec(
        *(
            PartitionField(field.field_id, number, parsed, f"p_{field.name}")
            for number, field in enumerate(able, start=PARTITION_FIELD_ID_START)
        )
    )
