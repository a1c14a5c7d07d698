"""Rows as lines of JSON: which value becomes what, exactly, so that each reader gives it back.

Numbers, text, truth and NULL are JSON's own, and every key is in every line. A decimal is text, since readers take
JSON's numbers for binary fractions; so are NaN and the infinities, for which JSON has no word. Dates and times are
ISO 8601, instants in UTC; binary is base64; lists and structs are JSON's; a map with text keys is an object.
"""

import json
import math
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pyarrow as pa

Convert = Callable[[Any], Any]


class LineEncoder:
    """Turns Arrow batches of one schema into lines.

    Args:
        schema: Schema of the batches; its types are those that `lakesink.sinks.directory.part_formats` lets through.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._names = schema.names
        self._in_utc = [_mapped(field.type, _in_utc) for field in schema]
        self._as_text = [_mapped(field.type, _as_text) for field in schema]
        self._converts = [_convert(field.type) for field in schema]

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """One line a row, each with its newline.

        Raises:
            ValueError: A date lies beyond what can be written.
        """
        columns = [self._values(batch.column(place), place) for place in range(batch.num_columns)]
        rows = (dict(zip(self._names, values, strict=True)) for values in zip(*columns, strict=True))
        return "".join([_LINE.encode(row) + "\n" for row in rows]).encode()

    def _values(self, column: pa.Array, place: int) -> list[Any]:
        for wanted in (self._in_utc[place], self._as_text[place]):
            column = column if column.type.equals(wanted) else column.cast(wanted)
        convert = self._converts[place]
        values: list[Any] = column.to_pylist()
        return values if convert is None else [None if value is None else convert(value) for value in values]


_LINE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _as_text(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_temporal(kind) else kind


def _mapped(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with another one in the place of each of its leaves."""
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(_mapped(part.type, change)) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_mapped(kind.item_type, change)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_mapped(kind.value_type, change)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_mapped(kind.value_type, change)))
    return change(kind)


def _convert(kind: pa.DataType) -> Convert | None:
    """What is left to do with a Python value of this type that is not None; None if nothing is."""
    if pa.types.is_struct(kind):
        return _of_struct([(part.name, _convert(part.type)) for part in kind])
    if pa.types.is_map(kind):
        return _of_map(_convert(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _of_list(_convert(kind.value_type))
    return next((convert for is_kind, convert in _LEAVES if is_kind(kind)), None)


def _of_struct(parts: list[tuple[str, Convert | None]]) -> Convert | None:
    converts = [(name, convert) for name, convert in parts if convert is not None]
    return (
        (lambda value: value | {name: _apply(convert, value[name]) for name, convert in converts}) if converts else None
    )


def _of_map(convert: Convert | None) -> Convert:
    return lambda value: {key: _apply(convert, item) for key, item in value}


def _of_list(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: [_apply(convert, item) for item in value]


def _apply(convert: Convert | None, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _moment(value: str) -> str:
    """As Arrow spells it, with ISO's letter; Arrow has a sentence for what it cannot spell."""
    if value.startswith("<"):
        raise ValueError("a date or time lies beyond what can be written")
    return value.replace(" ", "T", 1)


_LEAVES: tuple[tuple[Callable[[pa.DataType], bool], Convert], ...] = (
    (pa.types.is_floating, _number),
    (pa.types.is_decimal, lambda value: format(value, "f")),
    (pa.types.is_temporal, _moment),
    (pa.types.is_binary, lambda value: b64encode(value).decode()),
    (pa.types.is_large_binary, lambda value: b64encode(value).decode()),
    (pa.types.is_fixed_size_binary, lambda value: b64encode(value).decode()),
)
