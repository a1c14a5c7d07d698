"""Finds the rows of a batch that cannot be written, where the conversion of a batch says only that there is one."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.rows.changed_rows import RowBatch
from lakesink.rows.letters import Fault
from lakesink.rows.nested import nulls_of
from lakesink_protocol.catalogue import PREFIX
from lakesink_protocol.errors import WriteError

NULL = "NULL_IN_REQUIRED"
_OF_A_VALUE = frozenset(
    f"{PREFIX}{code}"
    for code in (NULL, "LOSSY_VALUE", "TEXT_INVALID", "PARTITION_VALUE_UNFIT", "KEY_NULL", "SEQUENCE_NULL")
)
"""Errors that are about one value: the other rows may be well."""
Fitted = TypeVar("Fitted")


@dataclass(slots=True)
class SortedRows(Generic[Fitted]):
    """The rows of a batch: those that fit, converted, and the positions of those that do not, with their faults."""

    fitting: list[Fitted] = field(default_factory=list, init=False)
    faults: dict[int, Fault] = field(default_factory=dict)


def sort_rows(rows: RowBatch, fit: Callable[[RowBatch], Fitted], known: Mapping[int, Fault]) -> SortedRows[Fitted]:
    """Convert the rows that fit, and find the others, but for those whose faults are known.

    `fit` converts rows, and raises WriteError if one of them does not fit. All rows that were made of one row as it
    came fit, or none.
    """
    found = SortedRows[Fitted](faults=dict(known))
    count = rows.rows.num_rows
    if not known and _fitted(rows, fit, found) is None:
        return found
    kept = all_but(count, known)
    _halve(rows.filter(kept) if known else rows, pc.indices_nonzero(kept), fit, found)
    also = rows.made_with(found.faults)
    if len(also) > len(found.faults):
        found.fitting = [fit(rows.filter(all_but(count, also)))]
    return found


def all_but(rows: int, positions: Iterable[int]) -> pa.BooleanArray:
    """True for each of so many rows, but not at these positions."""
    bits = bytearray(b"\xff") * -(-rows // 8)
    for position in positions:
        bits[position // 8] &= ~(1 << position % 8)
    return pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(bits)])


def nulls_in(rows: pa.RecordBatch, columns: Sequence[str], reason: str = NULL) -> Iterator[tuple[int, Fault]]:
    """Rows with NULL in a column that allows none: a batch can have many, and they are found at once."""
    for name in reversed(columns):  # the first column is the last to be named, and so it counts
        nulls = nulls_of(rows.column(name))
        if nulls.true_count:
            yield from ((at, Fault(reason, name)) for at in pc.indices_nonzero(nulls).to_pylist())


def _halve(rows: RowBatch, positions: pa.Array, fit: Callable[[RowBatch], Fitted], found: SortedRows[Fitted]) -> None:
    """Halve the rows until each part fits, or is one row."""
    fault = _fitted(rows, fit, found)
    if fault is None:
        return
    count = rows.rows.num_rows
    if count == 1:
        found.faults[positions[0].as_py()] = fault
        return
    half = count // 2
    for start, length in ((0, half), (half, count - half)):
        _halve(rows.slice(start, length), positions.slice(start, length), fit, found)


def _fitted(rows: RowBatch, fit: Callable[[RowBatch], Fitted], found: SortedRows[Fitted]) -> Fault | None:
    """None if all rows fit."""
    if not rows.rows.num_rows:
        return None
    try:
        found.fitting.append(fit(rows))
    except WriteError as error:
        if error.code not in _OF_A_VALUE:
            raise
        return Fault(error.code.removeprefix(PREFIX), detail=error.what)
    return None
