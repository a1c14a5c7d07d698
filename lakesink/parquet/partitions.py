"""Groups rows by partition: one pass to number the partitions, at most one sort, and at most one copy of each row.

Filtering for each partition would be quadratic. Rows that arrive clustered are only sliced.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.parquet.single_value import encode_value, raw_values
from lakesink.parquet.transforms import Transform, distinguishable, numbers_of, parse_transform
from lakesink.rows.plan import PartitionField, SortField
from lakesink.rows.schema import Struct, leaves, sql_type_of
from lakesink.rows.task_errors import shown
from lakesink_protocol.errors import WriteError

Partition = tuple[bytes | None, ...]
"""One value for each partition field, in Iceberg's single-value binary form; None is NULL."""


@dataclass(frozen=True, slots=True)
class PartitionSource:
    """One partition field: its name, positions of its source column from the top through structs, its transform."""

    name: str
    indices: tuple[int, ...]
    transform: Transform


@dataclass(frozen=True, slots=True)
class Group:
    """The position of one partition's rows in a `Grouping`."""

    partition: Partition
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Grouping:
    """A table grouped by partition; `order` lists rows by partition, None if the table already has this order."""

    table: pa.Table
    order: pa.Array | None
    groups: tuple[Group, ...]

    def take(self, groups: Sequence[Group]) -> pa.Table:
        """A copy of the rows of these partitions, one after the other; within a partition, rows keep their order."""
        if self.order is None:
            return pa.concat_tables([self.table.slice(group.start, group.count) for group in groups]).combine_chunks()
        return self.table.take(pa.concat_arrays([self.order.slice(group.start, group.count) for group in groups]))

    def split(self, groups: Sequence[Group]) -> Iterator[tuple[Partition, pa.Table]]:
        """The rows of each of these partitions; they share one copy, or none if the table is in order."""
        if self.order is None:
            for group in groups:
                yield group.partition, self.table.slice(group.start, group.count)
            return
        taken, start = self.take(groups), 0
        for group in groups:
            yield group.partition, taken.slice(start, group.count)
            start += group.count


def partition_sources(schema: Struct, fields: Sequence[PartitionField]) -> tuple[PartitionSource, ...]:
    """The source column of every partition field in the schema."""
    found = {leaf.field_id: leaf for leaf in leaves(schema)}
    columns = (found[field.source_id] for field in fields)
    return tuple(
        PartitionSource(field.name, leaf.indices, parse_transform(field.transform, leaf.type))
        for field, leaf in zip(fields, columns, strict=True)
    )


def source_paths(
    schema: Struct, fields: Sequence[PartitionField | SortField]
) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Path of every field's source column, and the transform in Iceberg's spelling."""
    paths = {leaf.field_id: leaf.path for leaf in leaves(schema)}
    return tuple((paths[field.source_id], field.transform) for field in fields)


def group(table: pa.Table, sources: Sequence[PartitionSource]) -> Grouping:
    """Group the rows of a non-empty table; raises WriteError if a transform's result does not fit its type."""
    if not sources:
        return Grouping(table, None, (Group((), 0, table.num_rows),))
    values = [_partitioned(table, source) for source in sources]
    numbers = numbers_of(pa.chunked_array([distinguishable(array)]) for array in values)
    counts = pc.value_counts(numbers).field("counts")
    starts = pc.subtract(pc.cumulative_sum(counts), counts)
    is_sorted = pc.all(pc.greater_equal(numbers[1:], numbers[:-1])).as_py()
    order = None if is_sorted else pc.sort_indices(numbers)
    firsts = starts if order is None else order.take(starts)  # a row of each partition tells its values
    columns = []
    for array, source in zip(values, sources, strict=True):
        kind = source.transform.result
        columns.append([None if raw is None else encode_value(kind, raw) for raw in raw_values(array.take(firsts))])
    partitions = zip(*columns, strict=True)
    return Grouping(table, order, tuple(map(Group, partitions, starts.to_pylist(), counts.to_pylist())))


def check_partition_values(rows: pa.RecordBatch, sources: Sequence[PartitionSource]) -> None:
    """Raise WriteError if a transform's result does not fit its type for one of the rows."""
    for source in sources:
        if source.transform.may_not_fit:
            _partitioned(pa.Table.from_batches([rows]), source)


def _partitioned(table: pa.Table, source: PartitionSource) -> pa.Array:
    try:
        return source.transform.apply(source_values(table, source.indices))
    except pa.ArrowInvalid:
        transform = source.transform
        spelled = f"{transform.name}[{transform.width}]" if transform.width else transform.name
        column, kind = table.column_names[source.indices[0]], sql_type_of(transform.source)
        raise WriteError.of(
            "PARTITION_VALUE_UNFIT", column=shown(column), kind=shown(kind), name=shown(source.name), spelled=spelled
        ) from None


def source_values(table: pa.Table, indices: Sequence[int]) -> pa.Array:
    """The values of a column by its positions from the top through structs, of a table with at least one chunk."""
    values = table.column(indices[0])
    if len(indices) > 1:
        values = pc.struct_field(values, indices=list(indices[1:]))
    return pa.concat_arrays(values.chunks)
