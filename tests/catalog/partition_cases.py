"""Partition values of every type and transform, their single-value bytes, and an order that is written down here."""

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
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
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)


def packed(form: str) -> Callable[[Any], bytes]:
    return lambda value: struct.pack(form, value)


def unscaled(value: Decimal) -> bytes:
    """Two's complement, big endian, the shortest that holds it."""
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    for size in range(1, 17):
        try:
            return number.to_bytes(size, "big", signed=True)
        except OverflowError:
            continue
    raise AssertionError("more than 38 digits")


def _decimals(precision: int, scale: int) -> list[Decimal]:
    largest = (0, (9,) * precision, -scale)
    smallest = (0, (1,), -scale)
    edge = (0, (*(1,) * max(precision - 1, 0), 7), -scale)
    return [Decimal((sign, digits, scale_)) for _, digits, scale_ in (largest, smallest, edge) for sign in (0, 1)]


INTS = [0, 1, -1, 2**31 - 1, -(2**31), 1000]
LONGS = [*INTS, 2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1]
FLOATS = [1.5, -2.25, 0.10000000149011612, 3.4028234663852886e38, 1.401298464324817e-45, math.inf, -math.inf]
DOUBLES = [*FLOATS, 0.1, 1.7e308, -1.7e308, 5e-324, 1 / 3, 16777217.0, 1e-310]
TEXTS = ["", "a", "b", "ä", "\U0001f600", "\uffee", "z" * 300, "a\x00b"]
BLOBS = [b"", b"\x00", b"\xff", b"\x80\x00", b"\x7f" * 40]


@dataclass(frozen=True)
class Case:
    """One partition field over some values; None and NaN are added where they can be."""

    source: IcebergType
    transform: Transform[Any, Any]
    values: Sequence[Any]
    encode: Callable[[Any], bytes]

    @property
    def name(self) -> str:
        return f"{self.transform} of {self.source}"


_INT, _LONG = packed("<i"), packed("<q")
IDENTITIES: list[tuple[IcebergType, Sequence[Any], Callable[[Any], bytes]]] = [
    (BooleanType(), [True, False], packed("<?")),
    (IntegerType(), INTS, _INT),
    (LongType(), LONGS, _LONG),
    (FloatType(), FLOATS, packed("<f")),
    (FloatType(), [0.0, -0.0], packed("<f")),
    (DoubleType(), DOUBLES, packed("<d")),
    (DoubleType(), [-0.0, 0.0, 7.0], packed("<d")),
    (DoubleType(), [0.0, -7.5], packed("<d")),
    (DateType(), INTS, _INT),
    (TimeType(), [0, 1, 86_399_999_999], _LONG),
    (TimestampType(), LONGS, _LONG),
    (TimestamptzType(), LONGS, _LONG),
    (StringType(), TEXTS, str.encode),
    (BinaryType(), BLOBS, bytes),
    (FixedType(3), [b"\x00\x00\x01", b"\xff\xff\xff", b"abc"], bytes),
    (UUIDType(), [UUID(int=1), UUID(int=2**127), UUID(int=2**128 - 1)], lambda value: bytes(value.bytes)),
    *(
        (DecimalType(precision, scale), _decimals(precision, scale), unscaled)
        for precision in (1, 2, 4, 9, 10, 18, 19, 28, 29, 38)
        for scale in (0, precision // 2, precision)[: 3 if precision in {9, 38} else 1]
    ),
]
BUCKETED = (
    IntegerType(), LongType(), DecimalType(9, 2), DecimalType(38, 10), DateType(), TimeType(), TimestampType(),
    TimestamptzType(), StringType(), UUIDType(), FixedType(3), BinaryType(),
)  # fmt: skip
TRUNCATED = ("int", "long", "string", "binary", "decimal(9, 4)", "decimal(38, 19)", "decimal(18, 0)")
DATES: list[Transform[Any, Any]] = [YearTransform(), MonthTransform(), DayTransform(), HourTransform()]
DATED: list[tuple[IcebergType, Transform[Any, Any]]] = [
    (source, transform)
    for source in (DateType(), TimestampType(), TimestamptzType())
    for transform in DATES
    if transform.can_transform(source)
]
CASES = [
    *(Case(source, IdentityTransform(), values, encode) for source, values, encode in IDENTITIES),
    *(Case(source, BucketTransform(16), [0, 7, 15], _INT) for source in BUCKETED),
    *(
        Case(source, TruncateTransform(4), values, encode)
        for source, values, encode in IDENTITIES
        if str(source) in TRUNCATED
    ),
    *(Case(source, transform, [0, -700, 700], _INT) for source, transform in DATED),
    *(Case(source, VoidTransform(), [], bytes) for source, _, _ in IDENTITIES[:16]),
]


def bounds(case: Case, values: Sequence[Any]) -> dict[str, Any]:
    """What the manifest list has to say of these values."""
    nans = [value for value in values if isinstance(value, float) and math.isnan(value)]
    known = [value for value in values if value is not None and value not in nans]
    low, high = (chosen(known, key=_order) if known else None for chosen in (min, max))
    if low == 0 and isinstance(low, float):
        low = -0.0
    if high == 0 and isinstance(high, float):
        high = 0.0
    return {
        "contains_null": None in values,
        "contains_nan": bool(nans),
        "lower_bound": None if low is None else case.encode(low),
        "upper_bound": None if high is None else case.encode(high),
    }


def _order(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value.bytes if isinstance(value, UUID) else value
