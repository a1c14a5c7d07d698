"""Column statistics of one closed file, from its own footer, as the table's metrics modes ask for them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakesink.writer.bounds import Range, bounds, merge, parquet_raw
from lakesink.writer.schema import Leaf

_DEFAULT_LENGTH = 16
_TRUNCATE = re.compile(r"truncate\((\d+)\)")


@dataclass(frozen=True, slots=True)
class MetricsMode:
    """What is recorded of one column.

    Attributes:
        counts: Values, NULLs and NaNs are counted.
        bounds: Bounds are kept.
        truncate_to: Length of bounds of text and bytes; None keeps all.
    """

    counts: bool
    bounds: bool
    truncate_to: int | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A leaf column and what is recorded of it."""

    leaf: Leaf
    mode: MetricsMode

    @property
    def counts_nans(self) -> bool:
        """True if NaNs of this column are counted: they are no part of Parquet's own statistics."""
        return self.mode.counts and self.leaf.type.is_floating and not self.leaf.repeated


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """Statistics by field id, see `lakesink_catalog.receipt.DataFileReceipt`."""

    column_sizes: dict[int, int] = field(default_factory=dict)
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)


def parse_mode(spelling: str) -> MetricsMode:
    """The mode that a table property spells like this; what is not understood keeps Iceberg's default."""
    text = spelling.strip().lower()
    if text == "none":
        return MetricsMode(counts=False, bounds=False)
    if text == "counts":
        return MetricsMode(counts=True, bounds=False)
    if text == "full":
        return MetricsMode(counts=True, bounds=True)
    found = _TRUNCATE.fullmatch(text)
    length = int(found[1]) if found else 0
    return MetricsMode(counts=True, bounds=True, truncate_to=length or _DEFAULT_LENGTH)


def columns(leaves: Sequence[Leaf], modes: Mapping[int, str]) -> tuple[Column, ...]:
    """Every leaf column with its mode; one that is not named has Iceberg's default."""
    return tuple(Column(leaf, parse_mode(modes.get(leaf.field_id, f"truncate({_DEFAULT_LENGTH})"))) for leaf in leaves)


def count_nans(table: pa.Table, column: Column) -> int:
    """NaNs of a floating-point column outside lists and maps."""
    top, *below = column.leaf.indices
    values = table.column(top)
    if below:
        values = pc.struct_field(values, indices=below)
    return pc.sum(pc.is_nan(values)).as_py() or 0


def file_statistics(footer: pq.FileMetaData, columns: Sequence[Column]) -> FileStatistics:
    """Statistics of a file.

    Args:
        footer: As the writer made it.
        columns: Every Parquet column, in order.
    """
    found = FileStatistics()
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    for position, column in enumerate(columns):
        _add_column(found, column, [group.column(position) for group in groups])
    return found


def split_offsets(footer: pq.FileMetaData) -> tuple[int, ...]:
    """Where every row group starts, ascending."""
    firsts = (footer.row_group(index).column(0) for index in range(footer.num_row_groups))
    return tuple(sorted(_start(chunk) for chunk in firsts))


def _start(chunk: pq.ColumnChunkMetaData) -> int:
    start = int(chunk.data_page_offset)
    return min(start, int(chunk.dictionary_page_offset)) if chunk.dictionary_page_offset else start


def _add_column(found: FileStatistics, column: Column, chunks: Sequence[pq.ColumnChunkMetaData]) -> None:
    field_id = column.leaf.field_id
    found.column_sizes[field_id] = sum(chunk.total_compressed_size for chunk in chunks)
    if not column.mode.counts:
        return
    found.value_counts[field_id] = sum(chunk.num_values for chunk in chunks)
    statistics = [chunk.statistics for chunk in chunks]
    if all(part is not None and part.has_null_count for part in statistics):
        found.null_value_counts[field_id] = sum(part.null_count for part in statistics)
    if column.mode.bounds and not column.leaf.repeated:
        _add_bounds(found, column, statistics)


def _add_bounds(found: FileStatistics, column: Column, statistics: Sequence[pq.Statistics]) -> None:
    """No bounds if a chunk with values has none; but one of floats without them is all NaN, which bounds leave out."""
    kind = column.leaf.type
    ranges = []
    for part in statistics:
        if part is None:
            return
        if part.has_min_max:
            ranges.append(Range(parquet_raw(kind, part.min_raw), parquet_raw(kind, part.max_raw)))
        elif part.num_values and not kind.is_floating:
            return
    if not ranges:
        return
    lower, upper = bounds(kind, merge(ranges), column.mode.truncate_to)
    found.lower_bounds.update(_present(column, lower))
    found.upper_bounds.update(_present(column, upper))


def _present(column: Column, bound: bytes | None) -> Iterator[tuple[int, bytes]]:
    if bound is not None:
        yield column.leaf.field_id, bound
