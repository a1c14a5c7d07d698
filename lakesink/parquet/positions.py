"""Positions of rows in a data file as roaring bitmaps, which Iceberg's deletion vectors are too. Pure.

A file can have millions of deleted rows. As a bitmap they take an eighth of a byte each instead of eight bytes, and
what a batch asks of them costs as much as the batch is large.
"""

from array import array

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from lakesink.rows.scalars import FALSE, TRUE


def positions_of(rows: pa.Array) -> BitMap64:
    """The set of positions that an array of 64-bit numbers has. None is NULL or negative."""
    numbers = array("Q")
    if len(rows):
        numbers.frombytes(memoryview(rows.buffers()[1])[8 * rows.offset : 8 * (rows.offset + len(rows))])
    return BitMap64(numbers)


def in_order(positions: BitMap64) -> pa.Array:
    """The positions as an array of 64-bit numbers, in ascending order."""
    return pa.Array.from_buffers(pa.int64(), len(positions), [None, pa.py_buffer(positions.to_array())])


def mask_of(positions: pa.Array, rows: int) -> pa.BooleanArray:
    """True for each of so many rows that is at one of these positions."""
    if not len(positions):
        return pa.repeat(FALSE, rows)
    found = pc.scatter(pa.repeat(TRUE, len(positions)), positions, max_index=rows - 1)
    return pc.fill_null(found, FALSE)


def below(positions: BitMap64, rows: int) -> BitMap64:
    """The positions that a file of so many rows has: a delete file of another writer can name others too."""
    return positions & BitMap64(range(rows)) if positions and positions.max() >= rows else positions
