"""Finds the rows of a batch that cannot be written, where the conversion of a batch says only that there is one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.rows.letters import Fault
from lakesink_protocol.catalogue import PREFIX
from lakesink_protocol.errors import WriteError

_NULL = "NULL_IN_REQUIRED"
_OF_A_VALUE = frozenset(f"{PREFIX}{code}" for code in (_NULL, "LOSSY_VALUE", "TEXT_INVALID", "PARTITION_VALUE_UNFIT"))
"""Errors that are about one value: the other rows may be well."""
Fit = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Converts rows to the table's columns; raises WriteError if one of them does not fit."""


@dataclass(slots=True)
class SortedRows:
    """The rows of a batch: those that fit, converted, and the positions of those that do not, with their faults."""

    fitting: list[pa.RecordBatch] = field(default_factory=list, init=False)
    faults: dict[int, Fault] = field(default_factory=dict)


def sort_rows(rows: pa.RecordBatch, fit: Fit, required: Sequence[int]) -> SortedRows:
    """Convert the rows that fit, and find the others; `required` are the positions of columns that allow no NULL."""
    found = SortedRows(faults={at: Fault(_NULL, name) for at, name in _nulls(rows, required)})
    if not found.faults and (not rows.num_rows or _fitted(rows, fit, found) is None):
        return found
    kept = all_but(rows.num_rows, found.faults)
    _halve(rows.filter(kept) if found.faults else rows, pc.indices_nonzero(kept), fit, found)
    return found


def all_but(rows: int, positions: Iterable[int]) -> pa.BooleanArray:
    """True for each of so many rows, but not at these positions."""
    bits = bytearray(b"\xff") * -(-rows // 8)
    for position in positions:
        bits[position // 8] &= ~(1 << position % 8)
    return pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(bits)])


def _halve(rows: pa.RecordBatch, positions: pa.Array, fit: Fit, found: SortedRows) -> None:
    """Halve the rows until each part fits, or is one row."""
    fault = _fitted(rows, fit, found) if rows.num_rows else None
    if fault is None:
        return
    if rows.num_rows == 1:
        found.faults[positions[0].as_py()] = fault
        return
    half = rows.num_rows // 2
    for start, length in ((0, half), (half, rows.num_rows - half)):
        _halve(rows.slice(start, length), positions.slice(start, length), fit, found)


def _fitted(rows: pa.RecordBatch, fit: Fit, found: SortedRows) -> Fault | None:
    """None if all rows fit."""
    try:
        found.fitting.append(fit(rows))
    except WriteError as error:
        if error.code not in _OF_A_VALUE:
            raise
        return Fault(error.code.removeprefix(PREFIX), detail=error.what)
    return None


def _nulls(rows: pa.RecordBatch, required: Sequence[int]) -> list[tuple[int, str]]:
    """Rows with NULL in a required column: a batch can have many, and they are found at once."""
    return [
        (at, rows.schema.names[position])
        for position in reversed(required)  # the first column is the last to be named, and so it counts
        if rows.column(position).null_count
        for at in pc.indices_nonzero(rows.column(position).is_null()).to_pylist()
    ]
