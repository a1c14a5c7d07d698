"""Rows split by partition: one pass to number the partitions, at most one sort and one copy, then slices.

Never a filter for each partition: that is quadratic. Rows that arrive clustered are only sliced.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.writer.plan import PartitionField
from lakesink.writer.schema import Field, Primitive, Struct
from lakesink.writer.single_value import encode_value, raw_values
from lakesink.writer.transforms import Transform, distinguishable, parse_transform

Partition = tuple[bytes | None, ...]
"""One value a partition field, in Iceberg's single-value binary form; None is NULL."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where one partition field's values come from.

    Attributes:
        name: Name of the partition field.
        column: Position of the top-level column.
        below: Positions of struct fields below it, from the top.
        transform: What is done to them.
    """

    name: str
    column: int
    below: tuple[int, ...]
    transform: Transform


@dataclass(frozen=True, slots=True)
class Split:
    """Rows of one partition."""

    partition: Partition
    rows: pa.Table


def partition_sources(schema: Struct, fields: Sequence[PartitionField]) -> tuple[Source, ...]:
    """Find every partition field's source column in the schema.

    Raises:
        WriteError: A transform is not known.
    """
    sources = []
    for field in fields:
        indices, kind = _find(schema, field.source_id, ()) or _no_source(field)
        sources.append(Source(field.name, indices[0], indices[1:], parse_transform(field.transform, kind)))
    return tuple(sources)


def split(table: pa.Table, sources: Sequence[Source]) -> list[Split]:
    """The table's rows by partition, in the order that partitions first appear; rows keep their order within."""
    if not sources:
        return [Split((), table)]
    values = [source.transform.apply(_source_values(table, source)) for source in sources]
    numbers = _partition_numbers(values)
    counts = pc.value_counts(numbers).field("counts").to_pylist()
    if len(counts) > 1 and not _is_sorted(numbers):
        order = pc.sort_indices(numbers)
        table, values = table.take(order), [column.take(order) for column in values]
    return _slices(table, counts, _partition_values(values, counts, sources))


def _slices(table: pa.Table, counts: Sequence[int], partitions: Sequence[Partition]) -> list[Split]:
    slices, start = [], 0
    for partition, count in zip(partitions, counts, strict=True):
        slices.append(Split(partition, table.slice(start, count)))
        start += count
    return slices


def _partition_values(values: Sequence[pa.Array], counts: Sequence[int], sources: Sequence[Source]) -> list[Partition]:
    """The values of every partition, read off its first row."""
    firsts = [0]
    for count in counts[:-1]:
        firsts.append(firsts[-1] + count)
    columns = []
    for array, source in zip(values, sources, strict=True):
        kind = source.transform.result
        raws = raw_values(array.take(pa.array(firsts, pa.int64())))
        columns.append([None if raw is None else encode_value(kind, raw) for raw in raws])
    return list(zip(*columns, strict=True))


def _partition_numbers(values: Sequence[pa.Array]) -> pa.Array:
    """A number for every row, equal for rows of one partition, counted from 0 as partitions appear."""
    numbers = _dense(values[0])
    for column in values[1:]:
        more = _dense(column)
        size = pc.add(pc.max(more), 1).cast(pa.int64())
        numbers = _dense(pc.add(pc.multiply(numbers.cast(pa.int64()), size), more.cast(pa.int64())))
    return numbers


def _dense(values: pa.Array) -> pa.Array:
    return pc.dictionary_encode(distinguishable(values), null_encoding="encode").indices


def _is_sorted(numbers: pa.Array) -> bool:
    return bool(pc.all(pc.greater_equal(numbers[1:], numbers[:-1])).as_py())


def _source_values(table: pa.Table, source: Source) -> pa.Array:
    column = table.column(source.column)
    if source.below:
        column = pc.struct_field(column, indices=list(source.below))
    return pa.concat_arrays(column.chunks)


def _find(struct: Struct, field_id: int, indices: tuple[int, ...]) -> tuple[tuple[int, ...], Primitive] | None:
    for index, field in enumerate(struct.fields):
        found = _find_in(field, field_id, (*indices, index))
        if found is not None:
            return found
    return None


def _find_in(field: Field, field_id: int, indices: tuple[int, ...]) -> tuple[tuple[int, ...], Primitive] | None:
    if isinstance(field.type, Struct):
        return _find(field.type, field_id, indices)
    return (indices, field.type) if field.field_id == field_id and isinstance(field.type, Primitive) else None


def _no_source(field: PartitionField) -> tuple[tuple[int, ...], Primitive]:
    raise AssertionError(f"partition field {field.name!r} has no source column {field.source_id} in the schema")
