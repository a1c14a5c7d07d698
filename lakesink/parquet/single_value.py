"""Iceberg's single-value binary form (spec, appendix D), the form of bounds and partition values.

A *raw* value is the common form of Parquet's statistics and Arrow's buffers: int for whole numbers, dates, times,
timestamps (in Iceberg's unit) and decimals (unscaled); float, bool, or bytes for the rest.
"""

import struct
from collections.abc import Mapping

import pyarrow as pa

from lakesink.rows.schema import Primitive

Raw = bool | int | float | bytes

_FORMATS: Mapping[str, str] = {
    "boolean": "<?",
    "int": "<i",
    "long": "<q",
    "float": "<f",
    "double": "<d",
    "date": "<i",
    "time": "<q",
    "timestamp": "<q",
    "timestamptz": "<q",
}
_DECIMAL_BYTES = 16


def encode_value(kind: Primitive, raw: Raw) -> bytes:
    """The binary form of a raw value of this type."""
    if isinstance(raw, bytes):
        return raw
    if kind.decimal:
        unscaled = int(raw)
        bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
        return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)
    return struct.pack(_FORMATS[kind.name], raw)


def decode_value(kind: Primitive, data: bytes) -> Raw:
    """The raw value of a binary form from `encode_value`."""
    if kind.decimal:
        return int.from_bytes(data, "big", signed=True)
    if kind.name not in _FORMATS:
        return data
    value: Raw = struct.unpack(_FORMATS[kind.name], data)[0]
    return value


def decoded_array(kind: Primitive, data: bytes) -> pa.Array:
    """An Arrow array with the value of a binary form: the inverse of `raw_values` and `encode_value`."""
    raw = decode_value(kind, data)
    if kind.decimal:
        unscaled = pa.py_buffer(int(raw).to_bytes(_DECIMAL_BYTES, "little", signed=True))
        return pa.Array.from_buffers(kind.arrow, 1, [None, unscaled])
    stored = {"date": pa.int32(), "time": pa.int64(), "timestamp": pa.int64(), "timestamptz": pa.int64()}
    return pa.array([raw], stored.get(kind.name, kind.arrow)).view(kind.arrow)


def raw_values(array: pa.Array) -> list[Raw | None]:
    """The raw values of an Arrow array of one of the writer's types, with None for NULL."""
    types, kind = pa.types, array.type
    if types.is_decimal128(kind):
        unscaled = array.view(pa.binary(_DECIMAL_BYTES)).to_pylist()
        return [None if data is None else int.from_bytes(data, "little", signed=True) for data in unscaled]
    if types.is_date32(kind):
        array = array.view(pa.int32())
    elif types.is_temporal(kind):
        array = array.view(pa.int64())
    elif types.is_string(kind):
        array = array.view(pa.binary())
    return array.to_pylist()  # type: ignore[no-any-return] # pyarrow is untyped
