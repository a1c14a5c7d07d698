"""Encodes rows as lines of JSON without loss, for records and dead letters: a reader can restore every value.

Numbers, strings, booleans, NULL, lists and structs have their JSON form, and every line has every key. Decimals are
strings, because readers parse JSON numbers as binary fractions. NaN and the infinities are strings too, because JSON
does not have them. Dates and times are ISO 8601, instants in UTC; years beyond 32767 are refused. Binary is base64. A
map with string keys is an object; another one is a list of objects with ``key`` and ``value``.
"""

import json
import math
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pyarrow as pa

Convert = Callable[[Any], Any]


class LineEncoder:
    """Encodes Arrow batches of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._names = schema.names
        self._without_zone = [_mapped(field.type, _without_zone) for field in schema]
        self._as_text = [_mapped(field.type, _as_text) for field in schema]
        self._converts = [_convert(field.type) for field in schema]

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """One line for each row, with a newline; raises ValueError for a date or time outside the range of ISO 8601."""
        columns = [self._values(batch.column(place), place) for place in range(batch.num_columns)]
        rows = (dict(zip(self._names, values, strict=True)) for values in zip(*columns, strict=True))
        return "".join([_LINE.encode(row) + "\n" for row in rows]).encode()

    def _values(self, column: pa.Array, place: int) -> list[Any]:
        for wanted in (self._without_zone[place], self._as_text[place]):
            column = column if column.type.equals(wanted) else column.cast(wanted)
        convert = self._converts[place]
        values: list[Any] = column.to_pylist()
        return values if convert is None else [None if value is None else convert(value) for value in values]


_LINE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _without_zone(kind: pa.DataType) -> pa.DataType:
    """Arrow's text of an instant wraps the year at 16 bits; without a zone, Arrow says that it is out of range."""
    return pa.timestamp(kind.unit) if _is_instant(kind) else kind


def _as_text(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_temporal(kind) else kind


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz)


def _mapped(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with each of its leaf types replaced."""
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(_mapped(part.type, change)) for part in kind])
    if pa.types.is_map(kind):
        keys, items = kind.key_field, kind.item_field
        return pa.map_(
            keys.with_type(_mapped(keys.type, change)), items.with_type(_mapped(items.type, change)), kind.keys_sorted
        )
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_mapped(kind.value_type, change)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_mapped(kind.value_type, change)))
    return change(kind)


def _convert(kind: pa.DataType) -> Convert | None:
    """Converts a non-NULL Python value of this type; None if no conversion is needed."""
    if pa.types.is_struct(kind):
        parts = {part.name: convert for part in kind if (convert := _convert(part.type)) is not None}
        if not parts:
            return None
        return lambda value: value | {name: _apply(convert, value[name]) for name, convert in parts.items()}
    if pa.types.is_map(kind):
        key, item = _convert(kind.key_type), _convert(kind.item_type)
        if pa.types.is_string(kind.key_type):
            return lambda value: {one: _apply(item, other) for one, other in value}
        return lambda value: [{"key": _apply(key, one), "value": _apply(item, other)} for one, other in value]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = _convert(kind.value_type)
        return None if item is None else lambda value: [_apply(item, one) for one in value]
    return next((convert for is_kind, convert in _LEAVES if is_kind(kind)), None)


def _apply(convert: Convert | None, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _moment(value: str) -> str:
    """Arrow's text, with ``T`` before the time. A value that Arrow cannot format becomes a text in angle brackets."""
    if value.startswith("<"):
        raise ValueError("a date or time is outside the range of ISO 8601")
    return value.replace(" ", "T", 1)


_LEAVES: tuple[tuple[Callable[[pa.DataType], bool], Convert], ...] = (
    (pa.types.is_floating, _number),
    (pa.types.is_decimal, lambda value: format(value, "f")),
    (_is_instant, lambda value: f"{_moment(value)}Z"),
    (pa.types.is_temporal, _moment),
    (pa.types.is_binary, lambda value: b64encode(value).decode()),
    (pa.types.is_large_binary, lambda value: b64encode(value).decode()),
    (pa.types.is_fixed_size_binary, lambda value: b64encode(value).decode()),
)
