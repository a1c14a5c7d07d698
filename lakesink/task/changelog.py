"""The changes of a batch as rows of a changelog: the table's columns, and what was known when they were written.

Whether a change was late, or superseded by one of another task, is known on the head of the commit only. So a changelog
says what came, in which order, and never what became of it. Imports PyArrow only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.keys.changed_rows import ChangedRows, partitions_of
from lakesink.rows.plan import ChangesPlan
from lakesink.rows.row_digest import rows_digest
from lakesink.rows.scalars import int64, text
from lakesink.rows.schema import Struct, arrow_field
from lakesink.rows.side_rows import digest_sum, side_key
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.row_changes import Mode, Operation

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
    count: int = 0
    digest: int = 0

    def of(self, changed: ChangedRows) -> pa.RecordBatch:
        """One row for each change, whose rows have the table's columns."""
        rows = changed.rows.num_rows
        said = {
            OPERATION: pc.choose(changed.operations.cast(pa.int64()), *_OPERATIONS),
            PARTITION: partitions_of(changed.places),
            OFFSET: changed.offsets,
        }
        columns = dict(zip(changed.rows.schema.names, changed.rows.columns, strict=True)) | said
        self.digest = digest_sum(self.digest, rows_digest(_batch(columns)))
        self.count += rows
        known = {SINK: pa.repeat(text(self.sink), rows), BATCH: pa.repeat(int64(self.batch_id), rows)}
        return _batch(columns | known)


def _batch(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


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
