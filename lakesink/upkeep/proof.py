"""Compares the rows of new files, read back, with the rows that were given to be written. Pure.

Rows are compared in a canonical form: for each leaf column the positions of its NULLs, lengths, and values, with NaN
and the sign of zero as they are. The digest is a checksum of each of these in the order of rows, so that a value in
another row or column changes it; `same_rows` compares the form itself.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.rows.schema import Field, Primitive, Struct
from lakesink.upkeep.columns import FileColumn, Unsuitable

Path = tuple[str, ...]
PROOF = "proof"
"""The code of a proof that failed."""


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """True if both have the same rows in the same order."""
    return _form(one) == _form(other)


def _form(table: pa.Table) -> list[Any]:
    counts, columns = dict[Path, int](), table.combine_chunks().columns
    names = zip(table.column_names, columns, strict=True)
    found = [part for name, column in names for one in column.chunks for part in canonical((name,), one, counts)]
    return [(what, bytes(buffer)) for what, buffer in found if len(buffer)]


def canonical(path: Path, values: pa.Array, counts: dict[Path, int]) -> Iterator[tuple[Path, Any]]:
    """Buffers by what they are of a column; `counts` has the values that were before these, by column."""
    kind, before = values.type, counts.get(path, 0)
    counts[path] = before + len(values)
    if values.null_count:
        nulls = pc.indices_nonzero(values.is_null()).cast(pa.int64())
        yield (*path, "nulls"), pc.add(nulls, pa.scalar(before, pa.int64())).buffers()[1]
    if pa.types.is_struct(kind):
        for part, below in zip(kind, values.flatten(), strict=True):
            yield from canonical((*path, ".", part.name), below, counts)
    elif pa.types.is_nested(kind):
        if pa.types.is_map(kind):
            values = values.view(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        yield (*path, "lengths"), _fixed(pc.list_value_length(values).fill_null(-1))
        yield from canonical((*path, "[]"), values.flatten(), counts)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        yield (*path, "lengths"), _fixed(pc.binary_length(values).fill_null(-1))
        _, offsets, data = values.buffers()
        if data is not None and len(values):  # what is empty has no buffer, or an empty one
            ends = pa.Array.from_buffers(pa.int32(), len(values) + 1, [None, offsets], offset=values.offset)
            yield (*path, "values"), data[ends[0].as_py() : ends[-1].as_py()]
    else:
        yield (*path, "values"), _fixed(_plain(values))


def _plain(values: pa.Array) -> pa.Array:
    """The same bits as numbers or bytes, with zero for NULL."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return values.cast(pa.uint8()).fill_null(0)
    if pa.types.is_decimal(kind):
        values = values.view(pa.binary(kind.byte_width))
    elif not pa.types.is_fixed_size_binary(kind):
        return values.view(pa.int32() if kind.bit_width == 32 else pa.int64()).fill_null(0)
    return values.fill_null(bytes(values.type.byte_width))


def _fixed(values: pa.Array) -> Any:
    width = values.type.bit_width // 8
    return values.buffers()[1][values.offset * width : (values.offset + len(values)) * width]


@dataclass(slots=True)
class Figures:
    """Rows in their order: their number, by column NULLs, minimum and maximum, and the checksums of what they hold."""

    rows: int = 0
    _nulls: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _sums: dict[Path, int] = field(default_factory=lambda: defaultdict(int))
    _counts: dict[Path, int] = field(default_factory=dict)
    _ranges: dict[str, list[pa.Scalar]] = field(default_factory=lambda: defaultdict(list))

    def add(self, rows: pa.Table) -> None:
        """Add the next rows."""
        for batch in rows.to_batches():
            self.rows += batch.num_rows
            for name, values in zip(rows.column_names, batch.columns, strict=True):
                self._nulls[name] += values.null_count
                if not pa.types.is_nested(values.type):
                    self._ranges[name] += pc.min_max(values).values()
                for what, buffer in canonical((name,), values, self._counts):
                    self._sums[what] = zlib.crc32(buffer, self._sums[what])

    @property
    def stated(self) -> dict[str, Any]:
        """All figures by what they are; those of the same rows are equal."""
        nulls = {f"number of NULLs in {name!r:.60}": count for name, count in self._nulls.items()}
        ranges = {f"minimum or maximum of {name!r:.60}": _range(found) for name, found in self._ranges.items()}
        sums = {f"values of {what[0]!r:.60} ({''.join(what[1:])})": one for what, one in self._sums.items() if one}
        return {"number of rows": self.rows, **nulls, **ranges, **sums}


def difference(before: Figures, after: Figures) -> str:
    """What differs first; empty if nothing does."""
    one, other = before.stated, after.stated
    return next((what for what in {**one, **other} if one.get(what) != other.get(what)), "")


def _range(found: list[pa.Scalar]) -> str:
    values = pa.array(found)
    if pa.types.is_floating(values.type):
        values = pc.add(values, 0.0)  # which zero is the smaller one depends on their order
    return str(pc.min_max(values))


def leaf_nulls(columns: Mapping[Field, pa.Array]) -> Iterator[tuple[int, int]]:
    """The number of NULLs of each leaf column that is in no list or map, by field id."""
    for column, values in columns.items():
        if isinstance(column.type, Primitive):
            yield column.field_id, values.null_count
        elif isinstance(column.type, Struct):
            yield from leaf_nulls(dict(zip(column.type.fields, values.flatten(), strict=True)))


def check_nulls(found: tuple[FileColumn, ...], footer: Any, nulls: Mapping[int, int]) -> None:
    """Compare the NULLs that were read with those that the writer of the file counted; raises Unsuitable.

    What is written again cannot show that a column was read as NULL: it was NULL before, too.
    """
    for place, leaf in enumerate(_leaves(found)):
        if leaf.field_id is None or leaf.field_id not in nulls:
            continue
        parts = [footer.row_group(number).column(place).statistics for number in range(footer.num_row_groups)]
        if all(part is not None and part.has_null_count for part in parts):
            counted = sum(part.null_count for part in parts)
            if counted != nulls[leaf.field_id]:
                raise Unsuitable(f"{PROOF}: {counted} NULLs of a column were read as {nulls[leaf.field_id]}")


def _leaves(columns: tuple[FileColumn, ...]) -> Iterator[FileColumn]:
    for one in columns:
        yield from _leaves(one.parts) if one.parts else iter((one,))
