"""The keys file of one task: key, sequence, operation and place of each change that it wrote, also of deletes.

The driver reads the files of a batch into one table, to locate the rows that the changes remove; each is checked
against what its task reported. No two rows of a file have the same key. The columns are ``k<field id>`` for each column
of the key, ``s<field id>`` for each of the sequence, with the table's types, and then `_PLACES`.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.keys.key_columns import KeyColumns, key_columns
from lakesink.keys.locate_errors import keys_file_damaged, reading, too_many_changes
from lakesink.parquet.filesystem import many_at_once
from lakesink.parquet.side_file import KEYS, SideFile, is_side_file
from lakesink.rows.changed_rows import ChangedRows
from lakesink.rows.plan import ChangesPlan, WritePlan
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol.events import FileClosing
from lakesink_protocol.redact import describe
from lakesink_protocol.row_changes import KeysFile, Operation

MOST_BYTES = 2**30
"""Limit for the changes of a batch in memory."""
_CHUNK = 2**20

OpenInput = Callable[[str], Any]
"""Opens a location as a binary file that can seek."""

OP, TASK, PLACE, OFFSET = "op", "task", "place", "offset"
_PLACES = ((OP, pa.int8()), (PLACE, pa.int64()), (OFFSET, pa.int64()))


@dataclass(slots=True)
class KeysFileWriter:
    """Writes the keys file of one task, which is created with the first change. Ends with `close` or `abandon`."""

    plan: WritePlan
    changes: ChangesPlan
    task: int
    file: SideFile = field(init=False)
    _columns: KeyColumns = field(init=False)
    _schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        self.file = SideFile(self.plan, self.task, KEYS, hashlib.sha256())
        self._columns = key_columns(self.plan.schema_json, self.changes.keys, self.changes.sequence)
        required = [pa.field(column.alias, column.arrow, nullable=False) for column in self._columns.all]
        self._schema = pa.schema([*required, *_PLACES])

    def add(self, changes: ChangedRows) -> None:
        """Add the newest changes of other keys than before."""
        columns = [changes.rows.column(column.name) for column in self._columns.all]
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


def is_keys_file(location: str, folder: str, stem: str, task: int) -> bool:
    """True if a task of this batch can have chosen this location."""
    return is_side_file(location, folder, stem, task, KEYS)


def read_changes(
    files: Sequence[KeysFile], columns: KeyColumns, open_input: OpenInput, most_bytes: int = MOST_BYTES
) -> pa.Table:
    """All changes of the files, in their order, with a column for the task. Raises WriteError for a damaged file."""
    if sum(file.size_bytes for file in files) > most_bytes:
        raise too_many_changes(most_bytes)
    schema = changes_schema(columns)
    read = partial(_read_file, schema=schema, open_input=open_input, most_bytes=most_bytes)
    tables, total = [schema.empty_table().append_column(TASK, pa.array([], pa.int32()))], 0
    for found in many_at_once(read, files, files[0].path if files else ""):
        tables.append(found)
        total += found.nbytes
        if total > most_bytes:
            raise too_many_changes(most_bytes)
    return pa.concat_tables(tables)


def changes_schema(columns: KeyColumns) -> pa.Schema:
    """The columns of a keys file, as they are read."""
    return pa.schema([*((column.alias, column.arrow) for column in columns.all), *_PLACES])


def _read_file(file: KeysFile, schema: pa.Schema, open_input: OpenInput, most_bytes: int) -> pa.Table:
    with reading(file.path, keys_file_damaged):
        data = _read_exactly(file, open_input)
    try:
        found = _decoded(data, file, schema, most_bytes)
    except (pa.ArrowException, OSError) as error:
        raise keys_file_damaged(file.path, describe(error)) from error
    _check_values(file, found)
    return found.append_column(TASK, pa.repeat(pa.scalar(file.task, pa.int32()), found.num_rows))


def _read_exactly(file: KeysFile, open_input: OpenInput) -> pa.Buffer:
    parts, size, digest = [], 0, hashlib.sha256()
    with open_input(file.path) as source:
        while size <= file.size_bytes and (part := source.read(min(_CHUNK, file.size_bytes + 1 - size))):
            parts.append(part)
            size += len(part)
            digest.update(part)
    if size != file.size_bytes or digest.hexdigest() != file.sha256:
        raise keys_file_damaged(file.path, "its size or its digest differs from the receipt's")
    return pa.py_buffer(b"".join(parts))


def _decoded(data: pa.Buffer, file: KeysFile, schema: pa.Schema, most_bytes: int) -> pa.Table:
    rows, size, batches = 0, 0, []
    with pa.ipc.open_stream(data) as reader:
        found = reader.schema  # a type may be the narrower one of an older schema of the table
        if found.names != schema.names or not all(map(_widens, found.types, schema.types)):
            raise keys_file_damaged(file.path, "its columns are not the key and sequence columns of the table")
        for batch in reader:
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if size > most_bytes:
                raise too_many_changes(most_bytes)
            batches.append(batch)
        table = pa.Table.from_batches(batches, found)
    if rows != file.rows:
        raise keys_file_damaged(file.path, f"it has {rows} changes, and the receipt has {file.rows}")
    table.validate(full=True)
    return table.cast(schema)


def _widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    if pa.types.is_decimal128(narrow) and pa.types.is_decimal128(wide):
        return bool(narrow.scale == wide.scale and narrow.precision <= wide.precision)
    return bool(narrow == wide) or bool(pa.types.is_int32(narrow) and pa.types.is_int64(wide))


def _check_values(file: KeysFile, found: pa.Table) -> None:
    ends = pc.min_max(found[OP]).as_py()
    known = not found.num_rows or (ends["min"] in set(Operation) and ends["max"] in set(Operation))
    required = [found[name].null_count for name in found.column_names if name not in (PLACE, OFFSET)]
    if any(required) or not known:
        raise keys_file_damaged(file.path, "it has a NULL, or an unknown operation")
    if not found[PLACE].is_valid().equals(found[OFFSET].is_valid()):
        raise keys_file_damaged(file.path, "a source position has a place without an offset, or the reverse")
