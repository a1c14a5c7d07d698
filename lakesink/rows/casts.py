"""Lossless casts from Arrow types to Iceberg primitives. Every other cast is refused.

Allowed are Iceberg's type promotions, changes of unit, and casts for types that Spark or Iceberg does not have: byte
and short to int, string to uuid, binary to fixed. Every value is checked.
"""

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.rows.nested import validity_of
from lakesink.rows.schema import UUID_BYTES, Primitive

Cast = Callable[[pa.Array], pa.Array]

_UUID_PATTERN = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
_NIL_UUID = "00000000-0000-0000-0000-000000000000"

_TEXT = frozenset({pa.string(), pa.large_string(), pa.string_view()})
_BINARY = frozenset({pa.binary(), pa.large_binary(), pa.binary_view()})
_ACCEPTED: Mapping[str, frozenset[pa.DataType]] = {
    "boolean": frozenset({pa.bool_()}),
    "int": frozenset({pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()}),
    "long": frozenset({pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()}),
    "float": frozenset({pa.float16(), pa.float32()}),
    "double": frozenset({pa.float16(), pa.float32(), pa.float64()}),
    "date": frozenset({pa.date32()}),
    "time": frozenset({pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")}),
    "timestamp": frozenset({pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns")}),
    "string": _TEXT,
    "binary": _BINARY,
    "uuid": _BINARY,
}


def lossless_cast(incoming: pa.DataType, target: Primitive) -> Cast | None:
    """The cast from an Arrow type to the target; None if it could lose information."""
    kind = target.arrow
    if pa.types.is_dictionary(incoming):
        cast = lossless_cast(incoming.value_type, target)
        return None if cast is None else lambda array: cast(array.dictionary_decode())
    if incoming == kind:
        return lambda array: array
    if target.name == "uuid" and incoming in _TEXT:
        return lambda array: parse_uuids(array.cast(pa.string()))
    return (lambda array: array.cast(kind)) if _is_accepted(incoming, target) else None


def _is_accepted(incoming: pa.DataType, target: Primitive) -> bool:
    if target.decimal:
        precision, scale = target.decimal
        return bool(pa.types.is_decimal(incoming) and incoming.scale == scale and incoming.precision <= precision)
    if target.fixed_bytes:
        return incoming in _BINARY
    if target.name == "timestamptz":
        return bool(pa.types.is_timestamp(incoming) and incoming.tz is not None)
    if target.name == "binary" and pa.types.is_fixed_size_binary(incoming):
        return True
    return incoming in _ACCEPTED[target.name]


def parse_uuids(texts: pa.Array) -> pa.Array:
    """Parse UUIDs from their canonical texts, in any case, NULL for NULL; raises `pyarrow.ArrowInvalid`.

    This works on the whole column: without NULLs and hyphens, its one buffer is the hexadecimal text of its values.
    """
    wrong = pc.filter(texts, pc.invert(pc.match_substring_regex(texts, _UUID_PATTERN)))
    if len(wrong):
        raise pa.ArrowInvalid("a text is not a UUID of 36 characters")
    filled = pa.concat_arrays([pc.replace_substring(pc.fill_null(texts, _NIL_UUID), "-", "")])
    data = filled.buffers()[2]
    digits = data.to_pybytes() if data is not None else b""
    values = bytes.fromhex(digits[: len(texts) * 2 * UUID_BYTES].decode("ascii"))
    return pa.Array.from_buffers(pa.binary(UUID_BYTES), len(texts), [validity_of(texts), pa.py_buffer(values)])
