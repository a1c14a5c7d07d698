"""Column statistics of one closed file, from its footer and by the table's metrics modes.

Floating-point columns are counted from the rows. The footer has no statistics for them, because readers would skip
rows with NaN. A missing bound is always correct, and one that is too narrow hides rows: an uncertain value gets none.
"""

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakesink.parquet.single_value import Raw, encode_value
from lakesink.rows.nested import entries
from lakesink.rows.plan import DEFAULT_MODE
from lakesink.rows.schema import Leaf, Primitive

_BEFORE_SURROGATES, _AFTER_SURROGATES = "\ud7ff", "\ue000"
_LAST_CHARACTER = chr(sys.maxunicode)


@dataclass(frozen=True, slots=True)
class Range:
    """Smallest and largest raw value of a column chunk or file."""

    low: Raw
    high: Raw


def merge(ranges: Iterable[Range]) -> Range:
    """The range that covers all ranges, of which there is at least one."""
    found = list(ranges)
    return Range(min(part.low for part in found), max(part.high for part in found))


def parquet_raw(kind: Primitive, value: Raw) -> Raw:
    """The raw value of one of Parquet's statistics; decimals longer than eight bytes are big-endian there."""
    if kind.decimal and isinstance(value, bytes):
        return int.from_bytes(value, "big", signed=True)
    return value


def bounds(kind: Primitive, found: Range, truncate_to: int | None) -> tuple[bytes | None, bytes | None]:
    """Lower and upper bound in single-value binary form; None for an uncertain bound.

    `truncate_to` is in code points of a string, or bytes of a binary or fixed; None keeps all.
    """
    if kind.is_floating:
        least, most = float(found.low), float(found.high)
        if math.isnan(least) or math.isnan(most):
            return None, None
        # Readers disagree on the sign of zero, so a zero bound gets the sign that includes both zeros.
        return encode_value(kind, -0.0 if least == 0 else least), encode_value(kind, 0.0 if most == 0 else most)
    low, high = encode_value(kind, found.low), encode_value(kind, found.high)
    length = sys.maxsize if truncate_to is None else truncate_to
    if kind.name == "string":
        return _shorten_text(low, length, upper=False), _shorten_text(high, length, upper=True)
    if kind.name == "binary" or kind.fixed_bytes:
        return low[:length], high if len(high) <= length else _next_bytes(high[:length])
    return low, high


def _shorten_text(value: bytes, length: int, *, upper: bool) -> bytes | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    if len(text) <= length:
        return value
    return _next_text(text[:length]) if upper else text[:length].encode()


def _next_text(text: str) -> bytes | None:
    """The shortest text above all texts that start with `text`; None if there is none."""
    kept = text.rstrip(_LAST_CHARACTER)
    if not kept:
        return None
    following = _AFTER_SURROGATES if kept[-1] == _BEFORE_SURROGATES else chr(ord(kept[-1]) + 1)
    return (kept[:-1] + following).encode()


def _next_bytes(value: bytes) -> bytes | None:
    kept = value.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


_TRUNCATE = re.compile(r"truncate\((\d+)\)")


@dataclass(frozen=True, slots=True)
class MetricsMode:
    """Statistics to record for one column; `truncate_to` is the length of string and binary bounds, None keeps all."""

    counts: bool
    bounds: bool
    truncate_to: int | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A leaf column and its metrics mode."""

    leaf: Leaf
    mode: MetricsMode

    @property
    def is_counted(self) -> bool:
        """True if its statistics are counted from the rows."""
        return self.mode.counts and self.leaf.type.is_floating


@dataclass(frozen=True, slots=True)
class FloatCounts:
    """Non-NULL values and NaNs of a floating-point column, and the range of its other values; None if there is none."""

    values: int = 0
    nans: int = 0
    range: Range | None = None

    def __add__(self, other: "FloatCounts") -> "FloatCounts":
        """The counts of both sets of rows."""
        ranges = [part.range for part in (self, other) if part.range is not None]
        return FloatCounts(self.values + other.values, self.nans + other.nans, merge(ranges) if ranges else None)


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """Statistics by field id, under their names in `ContentFile`."""

    column_sizes: dict[int, int] = field(default_factory=dict)
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    nan_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)


def parse_mode(spelling: str) -> MetricsMode:
    """The mode in the spelling of `WritePlan.metrics_modes`."""
    found = _TRUNCATE.fullmatch(spelling)
    bounded = spelling == "full" or found is not None
    return MetricsMode(counts=spelling != "none", bounds=bounded, truncate_to=int(found[1]) if found else None)


def columns(leaves: Sequence[Leaf], modes: Mapping[int, str]) -> tuple[Column, ...]:
    """Every leaf column with its mode; Iceberg's default for a column without one."""
    return tuple(Column(leaf, parse_mode(modes.get(leaf.field_id, DEFAULT_MODE))) for leaf in leaves)


def count(rows: pa.Table, column: Column) -> FloatCounts:
    """Count a floating-point column of some rows."""
    chunks = rows.column(column.leaf.indices[0]).chunks
    return sum((_count(_leaf(chunk, column.leaf)) for chunk in chunks), FloatCounts())


def _count(values: pa.Array) -> FloatCounts:
    ends = pc.min_max(values).as_py()  # NaNs are ignored
    found = ends["min"] is not None and not math.isnan(ends["min"])
    nans = pc.sum(pc.is_nan(values)).as_py() or 0
    return FloatCounts(len(values) - values.null_count, nans, Range(ends["min"], ends["max"]) if found else None)


def _leaf(array: pa.Array, leaf: Leaf) -> pa.Array:
    """The values of a leaf column inside a top-level column, without list items that a NULL hides."""
    for name in leaf.path[1:]:
        if pa.types.is_struct(array.type):
            array = pc.struct_field(array, array.type.get_field_index(name))
        elif pa.types.is_map(array.type):
            array = entries(array)[("key", "value").index(name)]
        else:
            array = array.flatten()
    return array


def file_statistics(
    footer: pq.FileMetaData, columns: Sequence[Column], counted: Mapping[int, FloatCounts]
) -> FileStatistics:
    """Statistics of a file; `counted` has the columns that were counted from the rows, by field id."""
    found = FileStatistics()
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    for position, column in enumerate(columns):
        field_id, chunks = column.leaf.field_id, [group.column(position) for group in groups]
        found.column_sizes[field_id] = sum(chunk.total_compressed_size for chunk in chunks)
        if not column.mode.counts:
            continue
        found.value_counts[field_id] = sum(chunk.num_values for chunk in chunks)
        if column.is_counted:
            _add_counted(found, column, counted[field_id])
        else:
            _add_from_footer(found, column, chunks)
    return found


def split_offsets(footer: pq.FileMetaData) -> tuple[int, ...]:
    """Start of every row group, ascending."""
    starts = []
    for index in range(footer.num_row_groups):
        first = footer.row_group(index).column(0)
        pages = (first.data_page_offset, first.dictionary_page_offset or first.data_page_offset)
        starts.append(int(min(pages)))
    return tuple(sorted(starts))


def _add_counted(found: FileStatistics, column: Column, counted: FloatCounts) -> None:
    field_id = column.leaf.field_id
    found.null_value_counts[field_id] = found.value_counts[field_id] - counted.values
    if column.leaf.repeated:
        return
    found.nan_value_counts[field_id] = counted.nans
    if column.mode.bounds and counted.range is not None:
        _add_bounds(found, column, counted.range)


def _add_from_footer(found: FileStatistics, column: Column, chunks: Sequence[pq.ColumnChunkMetaData]) -> None:
    """Add statistics from the footer, without bounds if a chunk with values has none."""
    statistics = [chunk.statistics for chunk in chunks]
    if all(part is not None and part.has_null_count for part in statistics):
        found.null_value_counts[column.leaf.field_id] = sum(part.null_count for part in statistics)
    with_values = [part for part in statistics if part is None or part.num_values]
    if not column.mode.bounds or column.leaf.repeated or not with_values:
        return
    if all(part is not None and part.has_min_max for part in with_values):
        kind = column.leaf.type
        ranges = (Range(parquet_raw(kind, part.min_raw), parquet_raw(kind, part.max_raw)) for part in with_values)
        _add_bounds(found, column, merge(ranges))


def _add_bounds(found: FileStatistics, column: Column, values: Range) -> None:
    lower, upper = bounds(column.leaf.type, values, column.mode.truncate_to)
    if lower is not None:
        found.lower_bounds[column.leaf.field_id] = lower
    if upper is not None:
        found.upper_bounds[column.leaf.field_id] = upper
