"""The keys file of one task: key, sequence, operation and place of each change that it wrote, also of deletes.

The driver reads it to locate the rows that the changes remove. No two rows of a file have the same key. The columns are
``k<field id>`` for each column of the key, ``s<field id>`` for each of the sequence, with the table's types, and then
`_PLACES`.
"""

import hashlib
from dataclasses import dataclass, field

import pyarrow as pa

from lakesink.parquet.side_file import SideFile, is_side_file
from lakesink.rows.changed_rows import ChangedRows
from lakesink.rows.plan import ChangesPlan, WritePlan
from lakesink.rows.schema import Field, Struct, arrow_type, parse_schema
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol.events import FileClosing
from lakesink_protocol.row_changes import KeysFile

OPERATION, PLACE, OFFSET = "op", "place", "offset"
_SUFFIX = "keys"
_PLACES = ((OPERATION, pa.int8()), (PLACE, pa.int64()), (OFFSET, pa.int64()))


@dataclass(slots=True)
class KeysFileWriter:
    """Writes the keys file of one task, which is created with the first change. Ends with `close` or `abandon`."""

    plan: WritePlan
    changes: ChangesPlan
    task: int
    file: SideFile = field(init=False)
    _schema: pa.Schema = field(init=False)
    _columns: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        table = parse_schema(self.plan.schema_json)
        self.file = SideFile(self.plan, self.task, _SUFFIX, hashlib.sha256())
        self._schema = keys_schema(table, self.changes)
        self._columns = names_of(table, (*self.changes.keys, *self.changes.sequence))

    def add(self, changes: ChangedRows) -> None:
        """Add the newest changes of other keys than before."""
        columns = [changes.rows.column(name) for name in self._columns]
        arrays = [*columns, changes.operations, changes.places, changes.offsets]
        self.file.add(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        """Make the file durable."""
        if self.file.rows:
            LISTENERS(FileClosing(self.plan.batch_id))
            self.file.close()

    def abandon(self) -> None:
        """Remove the file; never raises."""
        self.file.abandon()

    @property
    def written(self) -> KeysFile | None:
        """What a receipt says of the closed file; None without changes."""
        file = self.file
        if not file.rows:
            return None
        return KeysFile(file.location, self.task, file.rows, file.size_bytes, file.digest.hexdigest())


def keys_schema(table: Struct, changes: ChangesPlan) -> pa.Schema:
    """The columns of a keys file."""
    by_id = _by_id(table)
    keys = [pa.field(f"k{one}", arrow_type(by_id[one].type), nullable=False) for one in changes.keys]
    sequence = [pa.field(f"s{one}", arrow_type(by_id[one].type), nullable=False) for one in changes.sequence]
    return pa.schema([*keys, *sequence, *_PLACES])


def names_of(table: Struct, ids: tuple[int, ...]) -> tuple[str, ...]:
    """Names of top-level columns."""
    by_id = _by_id(table)
    return tuple(by_id[one].name for one in ids)


def is_keys_file(location: str, folder: str, stem: str, task: int) -> bool:
    """True if a task of this batch can have chosen this location."""
    return is_side_file(location, folder, stem, task, _SUFFIX)


def _by_id(table: Struct) -> dict[int, Field]:
    return {one.field_id: one for one in table.fields}
