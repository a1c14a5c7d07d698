"""Kafka's values from columns that have the names of Kafka's, but perhaps other types. Imports PyArrow only."""

import re
from typing import Any

import pyarrow as pa

from lakesink.rows.texts import is_valid

_DIGITS = re.compile(r"-?[0-9]{1,19}")


def exact_values(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Each value as a whole number, text or bytes, if that is exact; NULL for every other value. It never fails."""
    held, types = column.type, pa.types
    if held == kind and not types.is_string(kind):
        return column
    is_number = types.is_integer(held) or types.is_floating(held) or types.is_decimal(held)
    is_text = types.is_string(held) or types.is_large_string(held)
    is_bytes = is_text or types.is_binary(held) or types.is_large_binary(held) or types.is_fixed_size_binary(held)
    if types.is_integer(kind) and (is_number or is_text):
        values = column if is_number else _texts(column)
        return pa.array([_whole(value, kind.bit_width) for value in values.to_pylist()], kind)
    if types.is_string(kind) and (is_number or is_bytes):
        return column.cast(kind) if is_number else _texts(column)
    return column.cast(kind) if types.is_binary(kind) and is_bytes else pa.nulls(len(column), kind)


def _whole(value: Any, bits: int) -> int | None:
    if isinstance(value, str):
        value = int(value) if _DIGITS.fullmatch(value) else None
    limit = 1 << bits - 1
    return int(value) if value is not None and -limit <= value < limit and int(value) == value else None


def _texts(column: pa.Array) -> pa.Array:
    """Those that are UTF-8: Spark accepts any bytes as a text."""
    values = column.cast(pa.binary())
    texts = values.cast(pa.string(), safe=False)
    return texts if is_valid(texts) else pa.array(map(_text, values.to_pylist()), pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
