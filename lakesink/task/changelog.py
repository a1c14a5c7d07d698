"""The changes of a batch as rows of a changelog: the table's columns, and what was known when they were written.

Whether a change was late, or superseded by one of another task, is known on the head of the commit only. So a changelog
says what came, in which order, and never what became of it. Imports PyArrow only.

Its digest depends on the values of the rows only: not on their order, batches or tasks, nor on widened types. Rows that
are written again after a crash have the same digest if they are the same. It is no protection against an attacker. A
NULL counts for nothing, so a column that a table got meanwhile changes no digest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.rows.changed_rows import ChangedRows, partitions_of
from lakesink.rows.nested import validity_of
from lakesink.rows.plan import ChangesPlan
from lakesink.rows.scalars import int64, text, uint64
from lakesink.rows.schema import Struct, arrow_field
from lakesink.rows.side_rows import digest_sum, side_key
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.row_changes import Mode, Operation

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


OPERATION, SINK, BATCH, PARTITION, OFFSET = "_operation", "_sink", "_batch_id", "_source_partition", "_source_offset"
METADATA = pa.schema(
    [
        pa.field(OPERATION, pa.string(), nullable=False),
        pa.field(SINK, pa.string(), nullable=False),
        pa.field(BATCH, pa.int64(), nullable=False),
        (PARTITION, pa.int32()),
        (OFFSET, pa.int64()),
    ]
)
"""Columns of a changelog that its table does not have. The last two are of Kafka, and NULL for other sources."""
_OPERATIONS = tuple(text(operation.name.lower()) for operation in sorted(Operation))


@dataclass(slots=True)
class ChangelogRows:
    """Makes the rows of one task.

    Attributes:
        digest: Sum of the digests of all rows, see `rows_digest`.
    """

    sink: str
    batch_id: int
    count: int = field(default=0, init=False)
    digest: int = field(default=0, init=False)

    def of(self, changed: ChangedRows) -> pa.RecordBatch:
        """One row for each change, whose rows have the table's columns."""
        rows = changed.rows.num_rows
        said = {
            OPERATION: pc.choose(changed.operations.cast(pa.int64()), *_OPERATIONS),
            PARTITION: partitions_of(changed.places),
            OFFSET: changed.offsets,
        }
        columns = dict(zip(changed.rows.schema.names, changed.rows.columns, strict=True)) | said
        self.digest = digest_sum(self.digest, rows_digest(pa.RecordBatch.from_pydict(columns)))
        self.count += rows
        known = {SINK: pa.repeat(text(self.sink), rows), BATCH: pa.repeat(int64(self.batch_id), rows)}
        return pa.RecordBatch.from_pydict(columns | known)


def changelog_key(owner: SinkKey, query_id: str, table_uuid: str) -> SinkKey:
    """The application that writes the changelog of a sink, a query and a table."""
    return side_key(owner, "changelog", query_id, table_uuid)


def changelog_schema(table: Struct, changes: ChangesPlan) -> pa.Schema:
    """The columns of the changelog of a table. One that is not nullable has a value in every row.

    A hard delete may have values in the columns of key and sequence only.
    """
    always, whole = {*changes.keys, *changes.sequence}, changes.mode is Mode.UPSERT or changes.soft_deletes
    fields = [replace(one, required=one.field_id in always or (whole and one.required)) for one in table.fields]
    return pa.schema([*(arrow_field(one, annotated=True).remove_metadata() for one in fields), *METADATA])
