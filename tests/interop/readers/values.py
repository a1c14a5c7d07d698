"""Values as JSON has them, turned into what Arrow's `to_pylist` gives for an Iceberg type."""

import base64
import struct
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

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
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)


def from_json(kind: IcebergType, value: Any) -> Any:
    """A value of a type from JSON: structs by place or by name, maps as objects or as pairs of keys and values."""
    if value is None:
        return None
    match kind:
        case StructType():
            parts = [value.get(f.name) for f in kind.fields] if isinstance(value, Mapping) else value
            return {f.name: from_json(f.field_type, part) for f, part in zip(kind.fields, parts, strict=True)}
        case ListType():
            return [from_json(kind.element_type, part) for part in value]
        case MapType():
            pairs = value.items() if isinstance(value, Mapping) else zip(*value, strict=True)
            return [(from_json(kind.key_type, key), from_json(kind.value_type, part)) for key, part in pairs]
        case _:
            return _primitive(kind, value)


def _primitive(kind: IcebergType, value: Any) -> Any:
    if isinstance(kind, DecimalType):
        return _scaled(Decimal(value), kind.scale)
    return _PRIMITIVES[type(kind)](value)


def _scaled(value: Decimal, scale: int) -> Decimal:
    """JSON has no trailing zeros."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    assert exponent >= -scale
    unscaled = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    return Decimal((sign if unscaled else 0, tuple(map(int, str(unscaled))), -scale))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.removesuffix(" UTC").removesuffix("Z")).replace(tzinfo=UTC)


def _uuid(text: str) -> uuid.UUID:
    return uuid.UUID(text) if "-" in text else uuid.UUID(bytes=base64.b64decode(text))


_PRIMITIVES: Mapping[type[IcebergType], Callable[[Any], Any]] = {
    BooleanType: bool,
    IntegerType: int,
    LongType: int,
    FloatType: lambda value: struct.unpack("<f", struct.pack("<f", float(value)))[0],
    DoubleType: float,
    DateType: date.fromisoformat,
    TimeType: time.fromisoformat,
    TimestampType: datetime.fromisoformat,
    TimestamptzType: _moment,
    StringType: str,
    UUIDType: _uuid,
    BinaryType: base64.b64decode,
    FixedType: base64.b64decode,
}
