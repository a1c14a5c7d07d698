"""Values of every type that a key can have, with those at the ends."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakesink.keys.key_columns import KeyColumn

INT = [-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 2, 2**31 - 1]
LONG = [-(2**63), -(2**63) + 1, -(2**53) - 1, -(2**53), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1]
TEXT = [
    "",
    "\0",
    "a\0",
    "\0a",
    "a",
    "A",
    "a ",
    "é",
    "e\u0301",
    "ß",
    "ss",
    "\ud7ff",
    "\ue000",
    "\U0010ffff",
    "x" * 7_000,
]
BYTES = [b"", b"\0", b"\0\0", b"\xff", b"a", b"\x80", b"a" * 7_000]
SIXTEEN = [b"\0" * 16, b"\xff" * 16, b"\x80" + b"\0" * 15, b"\x7f" + b"\xff" * 15, bytes(range(16))]


def _decimals(precision: int) -> list[int]:
    most = 10**precision - 1
    return [-most, -most + 1, -1, 0, 1, most - 1, most]


RAW: dict[IcebergType, Sequence[Any]] = {
    BooleanType(): [True, False],
    IntegerType(): INT,
    LongType(): LONG,
    DateType(): INT,
    TimeType(): [0, 1, 86_399_999_999],
    TimestampType(): LONG,
    TimestamptzType(): LONG,
    StringType(): TEXT,
    BinaryType(): BYTES,
    FixedType(16): SIXTEEN,
    UUIDType(): SIXTEEN,
    DecimalType(9, 2): _decimals(9),
    DecimalType(18, 0): _decimals(18),
    DecimalType(38, 10): _decimals(38),
    DecimalType(38, 38): _decimals(38),
}
"""Raw values by type: numbers for all that is stored as a number, else text or bytes."""

MORE: dict[IcebergType, st.SearchStrategy[Any]] = {
    BooleanType(): st.booleans(),
    IntegerType(): st.integers(-(2**31), 2**31 - 1),
    LongType(): st.integers(-(2**63), 2**63 - 1),
    DateType(): st.integers(-(2**31), 2**31 - 1),
    TimeType(): st.integers(0, 86_399_999_999),
    TimestampType(): st.integers(-(2**63), 2**63 - 1),
    TimestamptzType(): st.integers(-(2**63), 2**63 - 1),
    StringType(): st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    BinaryType(): st.binary(max_size=20),
    FixedType(16): st.binary(min_size=16, max_size=16),
    UUIDType(): st.binary(min_size=16, max_size=16),
    DecimalType(9, 2): st.integers(-(10**9) + 1, 10**9 - 1),
    DecimalType(18, 0): st.integers(-(10**18) + 1, 10**18 - 1),
    DecimalType(38, 10): st.integers(-(10**38) + 1, 10**38 - 1),
    DecimalType(38, 38): st.integers(-(10**38) + 1, 10**38 - 1),
}


def values(kind: IcebergType) -> st.SearchStrategy[Any]:
    """Raw values of a type, many of them at the ends."""
    return st.one_of(st.sampled_from(RAW[kind]), MORE[kind])


def array_of(column: KeyColumn, raw: Sequence[Any]) -> pa.Array:
    """Raw values as an array of the column's type."""
    kind = column.arrow
    if pa.types.is_decimal128(kind):
        data = b"".join(value.to_bytes(16, "little", signed=True) for value in raw)
        return pa.Array.from_buffers(kind, len(raw), [None, pa.py_buffer(data)])
    if pa.types.is_date32(kind):
        return pa.array(raw, pa.int32()).view(kind)
    if pa.types.is_temporal(kind):
        return pa.array(raw, pa.int64()).view(kind)
    return pa.array(raw, kind)
