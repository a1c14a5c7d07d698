"""A digest of rows that depends on their values only: not on their order, batches or tasks, nor on widened types.

Rows that are written again after a crash have the same digest if they are the same. It is no protection against an
attacker. A NULL counts for nothing, so a column that a table got meanwhile changes no digest.
"""

from collections.abc import Sequence
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.rows.nested import validity_of
from lakesink.rows.scalars import uint64
from lakesink.rows.side_rows import digest_sum

_BYTES = 8
_NOTHING = bytes(_BYTES)
_MIXER = uint64(0xBF58476D1CE4E5B9)
"""A constant of the generator SplitMix64. Arrow's products wrap around."""
_HALF, _LOW, _ZERO = uint64(32), uint64(0xFFFFFFFF), uint64(0)


def rows_digest(rows: pa.RecordBatch) -> int:
    """The sum of the digests of these rows."""
    if not rows.num_rows:
        return 0
    digests = pa.repeat(_ZERO, rows.num_rows)
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        seed = uint64(int.from_bytes(_of_bytes(name.encode()), "little"))
        mixed = _mixed(pc.bit_wise_xor(_numbers(column), seed))
        digests = pc.add(digests, pc.fill_null(mixed, _ZERO))
    digests = _mixed(_mixed(digests))
    low, high = pc.bit_wise_and(digests, _LOW), pc.shift_right(digests, _HALF)  # their sums do not overflow
    return digest_sum(pc.sum(low).as_py() + (pc.sum(high).as_py() << 32))


def _mixed(numbers: pa.Array) -> pa.Array:
    product = pc.multiply(pc.bit_wise_xor(numbers, pc.shift_right(numbers, _HALF)), _MIXER)
    return pc.bit_wise_xor(product, pc.shift_right(product, _HALF))


def _numbers(column: pa.Array) -> pa.Array:
    """A number for each value, the same for equal ones; NULL for NULL."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.int64()).view(pa.uint64())
    if pa.types.is_floating(kind):
        return column.cast(pa.float64()).view(pa.uint64())
    if pa.types.is_date32(kind):
        return column.view(pa.int32()).cast(pa.int64()).view(pa.uint64())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return column.view(pa.uint64())
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _digests(column, column.cast(pa.binary()).to_pylist())
    return _digests(column, [None if value is None else repr(value).encode() for value in column.to_pylist()])


def _digests(column: pa.Array, values: Sequence[bytes | None]) -> pa.Array:
    data = b"".join([_NOTHING if value is None else _of_bytes(value) for value in values])
    return pa.Array.from_buffers(pa.uint64(), len(column), [validity_of(column), pa.py_buffer(data)])


def _of_bytes(value: bytes) -> bytes:
    return sha256(value).digest()[:_BYTES]
