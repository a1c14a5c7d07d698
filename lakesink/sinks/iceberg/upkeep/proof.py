"""Compares the rows of new files, read back, with the rows that were given to be written. Pure.

Rows are compared in a canonical form: for each leaf column the positions of its NULLs, lengths, and values, with NaN
and the sign of zero as they are. Each of these has a checksum in the order of rows, so that a value in another row or
column changes it.
"""

import hashlib
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.rows.schema import Leaf
from lakesink.sinks.iceberg.upkeep.columns import Unsuitable, parts_of
from lakesink.sinks.iceberg.upkeep.policy import Verify

Path = tuple[str, ...]
PROOF = "proof"
"""The code of a proof that failed."""


def canonical(path: Path, values: pa.Array, counts: Counter[Path]) -> Iterator[tuple[Path, Any]]:
    """Buffers by what they are of a column; `counts` has the values that were before these, by column."""
    kind, before = values.type, counts[path]
    counts[path] += len(values)
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

    verify: Verify = Verify.DIGEST
    found: Counter[str] = field(default_factory=Counter)
    _sums: dict[Path, Any] = field(default_factory=dict)
    _counts: Counter[Path] = field(default_factory=Counter)
    _ranges: dict[str, list[pa.Scalar]] = field(default_factory=lambda: defaultdict(list))

    def add(self, rows: pa.Table) -> None:
        """Add the next rows."""
        for batch in rows.to_batches():
            self.found["number of rows"] += batch.num_rows
            for name, values in zip(rows.column_names, batch.columns, strict=True):
                self.found[f"number of NULLs in {name!r:.60}"] += values.null_count
                if not pa.types.is_nested(values.type):
                    self._ranges[f"minimum or maximum of {name!r:.60}"] += pc.min_max(values).values()
                for what, buffer in canonical((name,), values, self._counts):
                    self._sum(what, buffer)

    def _sum(self, what: Path, buffer: Any) -> None:
        if not len(buffer):
            return
        if self.verify is Verify.ROWS:
            self._sums.setdefault(what, hashlib.sha256()).update(buffer)
        else:
            self._sums[what] = zlib.crc32(buffer, self._sums.get(what, 0))

    def difference(self, other: "Figures") -> str:
        """What differs first in the same columns; empty if nothing does."""
        one, two = self.stated(), other.stated()
        return next((what for what in {**one, **two} if one.get(what) != two.get(what)), "")

    def stated(self) -> dict[str, Any]:
        """All figures by what they are; those of the same rows are equal."""
        ranges = {what: _range(found) for what, found in self._ranges.items()}
        sums = {
            f"values of {what[0]!r:.60} ({''.join(what[1:])})": one if isinstance(one, int) else one.digest()
            for what, one in self._sums.items()
        }
        return {**self.found, **ranges, **sums}


def _range(found: list[pa.Scalar]) -> str:
    values = pa.array(found)
    if pa.types.is_floating(values.type):
        values = pc.add(values, 0.0)  # which zero is the smaller one depends on their order
    return str(pc.min_max(values))


def null_counts(rows: pa.RecordBatch, columns: Sequence[Leaf]) -> dict[str, int]:
    """The number of NULLs of each leaf column that is in no list or map, by field id."""
    leaves = [(leaf, rows.column(leaf.indices[0])) for leaf in columns if not leaf.repeated]
    return {
        str(leaf.field_id): (pc.struct_field(one, leaf.indices[1:]) if leaf.indices[1:] else one).null_count
        for leaf, one in leaves
    }


def check_nulls(found: pa.StructType, footer: Any, nulls: Mapping[str, int]) -> None:
    """Compare the NULLs that were read with those that the writer of the file counted; raises Unsuitable.

    What is written again cannot show that a column was read as NULL: it was NULL before, too.
    """
    for place, name in enumerate(_leaves(found)):
        parts = [footer.row_group(number).column(place).statistics for number in range(footer.num_row_groups)]
        if name in nulls and all(part is not None and part.has_null_count for part in parts):
            counted = sum(part.null_count for part in parts)
            if counted != nulls[name]:
                raise Unsuitable(f"{PROOF}: {counted} NULLs of a column were read as {nulls[name]}")


def _leaves(kind: pa.DataType) -> Iterator[str]:
    for one in parts_of(kind):
        yield from _leaves(one.type) if parts_of(one.type) else iter((one.name,))
