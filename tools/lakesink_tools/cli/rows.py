"""Rows of a table and offsets of a batch, as JSON and as cells: nothing that they hold is lost silently."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import pyarrow as pa


def documents(rows: "pa.Table") -> list[dict[str, Any]]:
    """One object a row, with values that JSON has; the others as text."""
    columns = [[_value(value) for value in _pythonic(column)] for column in rows.columns]
    return [dict(zip(rows.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def documents_of(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows in Python's types as objects with values that JSON has; the others as text."""
    return [{name: _value(value) for name, value in row.items()} for row in rows]


def cells(found: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The same as text."""
    return [
        [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in row.values()]
        for row in found
    ]


def parsed_offsets(offsets: str) -> Any:
    """The document; the text itself if it is no JSON, None if there is none."""
    try:
        return json.loads(offsets, parse_constant=_no_number, parse_float=_finite) if offsets else None
    except (ValueError, RecursionError):
        return offsets


def _pythonic(column: "pa.ChunkedArray") -> list[Any]:
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):  # years that Python's calendar does not have
        from pyarrow import string  # most commands show no rows

        return list(column.cast(string()).to_pylist())


def _value(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return value.hex()
        case dict():
            return {str(name): _value(part) for name, part in value.items()}
        case list() | tuple():
            return [_value(part) for part in value]
        case _:
            return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
