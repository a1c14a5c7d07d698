"""Chooses the columns that get a Parquet dictionary, by a sample of the rows, before encoding.

If a dictionary outgrows its page, the column is encoded again without it, and the page stays in the file. On wide
rows with many unique numbers, this takes almost half of the encoder's time.
"""

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.parquet.statistics import Column

_SLICES, _SLICE_ROWS = 8, 512
_STEPS = 40
"""Steps of the bisection."""


def dictionary_columns(rows: pa.Table, columns: Sequence[Column], limit_bytes: int) -> tuple[str, ...]:
    """Parquet names of columns whose dictionary is likely to stay small, and of nested columns."""
    sample = _sample(rows)
    chosen = (column for column in columns if _stays_small(rows, sample, column, limit_bytes))
    return tuple(column.leaf.parquet_path for column in chosen)


def expected_distinct(seen: int, of: int) -> float:
    """Expected distinct values of a column if a sample of size `of` has `seen` distinct ones; infinite if all differ.

    A sample of n out of D equally frequent values is expected to contain ``D * (1 - exp(-n / D))`` of them.
    """
    if seen >= of:
        return math.inf
    low, high = float(seen), float(of) ** 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if -middle * math.expm1(-of / middle) < seen else (low, middle)
    return high


def _sample(rows: pa.Table) -> pa.Table:
    """Rows from several places, because neighbouring rows are similar."""
    if rows.num_rows <= _SLICES * _SLICE_ROWS:
        return rows
    step = rows.num_rows // _SLICES
    return pa.concat_tables([rows.slice(at * step, _SLICE_ROWS) for at in range(_SLICES)])


def _stays_small(rows: pa.Table, sample: pa.Table, column: Column, limit_bytes: int) -> bool:
    if len(column.leaf.indices) > 1 or column.leaf.repeated:
        return True
    values = sample.column(column.leaf.indices[0])
    present = sample.num_rows - values.null_count
    distinct = expected_distinct(pc.count_distinct(values).as_py(), present) if present else 0.0
    width = int(values.nbytes) / max(1, present)
    return distinct * width <= limit_bytes and distinct <= int(rows.num_rows) / 2
