"""Keys files and data files for the tests of locating."""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField

from lakesink.keys.key_columns import KeyColumns, key_columns
from lakesink.keys.keys_file import changes_schema
from lakesink.rows.schema import FIELD_ID_KEY
from lakesink_protocol.row_changes import KeysFile, Operation

UPSERT, DELETE, SNAPSHOT = (int(operation) for operation in Operation)
Change = tuple[Any, ...]
"""Keys, sequences, operation, place and offset of a change."""


def columns_of(keys: Sequence[IcebergType], sequences: Sequence[IcebergType] = ()) -> KeyColumns:
    """Key columns with the ids 1, 2, ..., then sequence columns."""
    kinds = [*keys, *sequences]
    fields = [NestedField(place, f"c{place}", kind, required=True) for place, kind in enumerate(kinds, 1)]
    ids = range(1, len(kinds) + 1)
    schema = Schema(*fields).model_dump_json()
    return key_columns(schema, list(ids)[: len(keys)], list(ids)[len(keys) :])


def changes_table(columns: KeyColumns, changes: Sequence[Change]) -> pa.Table:
    """Changes in the form of a keys file."""
    schema = changes_schema(columns)
    values = list(zip(*changes, strict=True)) if changes else [()] * len(schema)
    return pa.table([pa.array(column, kind) for column, kind in zip(values, schema.types, strict=True)], schema=schema)


def write_keys(folder: Path, table: pa.Table, task: int = 0, stem: str = "s-0") -> KeysFile:
    """A keys file as a task writes it."""
    path = folder / f"{stem}-{task:05d}-{uuid.uuid4()}.keys"
    with pa.ipc.new_stream(str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    data = path.read_bytes()
    return KeysFile(str(path), task, table.num_rows, len(data), hashlib.sha256(data).hexdigest())


def write_rows(path: Path, columns: Mapping[tuple[str, int], pa.Array], rows_in_group: int = 1_000_000) -> str:
    """A data file with the columns by name and field id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema(
        [
            pa.field(name, array.type, metadata={FIELD_ID_KEY: str(field_id)})
            for (name, field_id), array in columns.items()
        ]
    )
    table = pa.table(list(columns.values()), schema=schema)
    pq.write_table(table, path, row_group_size=rows_in_group, store_schema=False, store_decimal_as_integer=True)
    return str(path)


def opened(path: str) -> Any:
    return Path(path.removeprefix("file://")).open("rb")
