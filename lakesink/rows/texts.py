"""Refuses text that is not UTF-8 before it is written: one such value makes a whole table unreadable.

Neither Spark (`CAST(value AS STRING)` accepts any bytes) nor Parquet's writer checks it.
"""

from bisect import bisect_left

import pyarrow as pa

from lakesink.rows.nested import entries
from lakesink.rows.task_errors import shown
from lakesink_protocol.errors import WriteError

Path = tuple[str, ...]


def check_texts(batch: pa.RecordBatch, first_row: int) -> None:
    """Refuse rows with text that is not UTF-8, at any depth; `first_row` rows of the task came before."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        path = _invalid(column, (name,))
        if path is not None:
            ends = range(1, len(column) + 1)
            first = bisect_left(ends, x=True, key=lambda end: _invalid(column.slice(0, end), ()) is not None)
            raise WriteError.of("TEXT_INVALID", column=shown(".".join(path)), row=first_row + first + 1)


def _invalid(array: pa.Array, path: Path) -> Path | None:
    """The path to a text that is not UTF-8; None if there is none."""
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _invalid(array.storage, path)
    if types.is_dictionary(kind):
        return _invalid(array.dictionary_decode(), path) if _is_text(kind.value_type) else None
    if types.is_nested(kind):
        below = ((part, (*path, name)) for name, part in _parts(array))
        return next((found for part, at in below if (found := _invalid(part, at)) is not None), None)
    return path if _is_text(kind) and not is_valid(array) else None


def _parts(array: pa.Array) -> list[tuple[str, pa.Array]]:
    kind = array.type
    if pa.types.is_struct(kind):
        return list(zip((field.name for field in kind), array.flatten(), strict=True))
    if pa.types.is_map(kind):
        return list(zip(("key", "value"), entries(array), strict=True))
    return [("element", array.flatten())]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_valid(array: pa.Array) -> bool:
    """True if all texts are UTF-8."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
