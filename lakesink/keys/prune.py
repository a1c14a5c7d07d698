"""Which data files can have a key of the batch, by their bounds and their partition. Pure.

A file is left out only if its bounds are certain; a file without bounds is kept.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.keys.key_columns import KeyColumns
from lakesink.parquet.partitions import Partition, group, partition_sources
from lakesink.parquet.single_value import Raw, raw_values
from lakesink.rows.plan import PartitionField
from lakesink.rows.schema import Field, Primitive, Struct
from lakesink_protocol.errors import WriteError

_BYTES = ("string", "binary")
_UNORDERED = ("uuid", "boolean")
"""Some writers order uuids as signed numbers; two values of a boolean exclude no file."""
_SURE = ("bucket", "identity", "truncate")
"""Transforms without periods: some writers have other periods before 1970, and bounds exclude these files as well."""
_SAMPLES = 256


@dataclass(frozen=True, slots=True)
class SortedValues:
    """The values of a column, their ascending order, and raw values of some of them, evenly spaced in this order."""

    kind: Primitive
    values: pa.ChunkedArray
    order: pa.Array
    step: int
    samples: tuple[Raw, ...]

    @classmethod
    def of(cls, kind: Primitive, values: pa.ChunkedArray) -> "SortedValues":
        """Sort the values, but do not copy them: they can be long texts."""
        order = pc.sort_indices(values)
        step = len(order) // _SAMPLES + 1
        return cls(kind, values, order, step, _raw(values.take(order[::step])))

    def any_within(self, lower: bytes, upper: bytes) -> bool:
        """True if a value is within the bounds, or the bounds contradict each other."""
        low, high = _decoded(self.kind, lower), _decoded(self.kind, upper)
        if low > high:  # type: ignore[operator] # both are of one kind
            return True
        sample = bisect_left(self.samples, low)
        if sample < len(self.samples) and self.samples[sample] <= high:  # type: ignore[operator] # of the same kind
            return True
        between = range(max(sample - 1, 0) * self.step, min(sample * self.step, len(self.order)))
        place = bisect_left(between, low, key=self._raw)
        return place < len(between) and self._raw(between[place]) <= high  # type: ignore[operator] # the same

    def _raw(self, place: int) -> Raw:
        [found] = _raw(self.values.slice(self.order[place].as_py(), 1))
        return found


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """The values of a batch's keys, by column."""

    columns: tuple[tuple[int, SortedValues], ...]

    def may_be_in(self, lower: Mapping[int, bytes], upper: Mapping[int, bytes]) -> bool:
        """True unless the bounds of a column exclude all values of this column."""
        return all(
            values.any_within(lower[field_id], upper[field_id])
            for field_id, values in self.columns
            if field_id in lower and field_id in upper
        )


def key_ranges(changes: pa.Table, columns: KeyColumns) -> KeyRanges:
    """The ranges of the keys of some changes."""
    ordered = (column for column in columns.keys if column.kind.name not in _UNORDERED)
    return KeyRanges(tuple((one.field_id, SortedValues.of(one.kind, changes[one.alias])) for one in ordered))


def key_partitions(
    changes: pa.Table, columns: KeyColumns, spec: Sequence[PartitionField]
) -> frozenset[Partition] | None:
    """The partitions that can have the keys, if the keys alone decide on the partition; else None."""
    ids = {column.field_id for column in columns.keys}
    if not spec or not all(part.source_id in ids and part.transform.partition("[")[0] in _SURE for part in spec):
        return None
    schema = Struct(tuple(Field(column.field_id, column.alias, True, column.kind) for column in columns.keys))  # noqa: FBT003
    keys = changes.select(columns.key_names).combine_chunks()
    if not keys.num_rows:
        return frozenset()
    try:
        return frozenset(found.partition for found in group(keys, partition_sources(schema, spec)).groups)
    except WriteError:  # the key of a delete has no partition, because no row can have this key
        return None


def _decoded(kind: Primitive, data: bytes) -> Raw:
    """The raw value of a bound, perhaps of a narrower type than the present one."""
    if kind.name in _BYTES or kind.fixed_bytes:
        return data
    return int.from_bytes(data, "big" if kind.decimal else "little", signed=True)


def _raw(values: pa.ChunkedArray) -> tuple[Raw, ...]:
    """The raw values of keys, which have no NULL."""
    found = tuple(value for value in raw_values(values.combine_chunks()) if value is not None)
    assert len(found) == len(values)
    return found
