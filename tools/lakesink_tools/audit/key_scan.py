"""Proves that each key of a snapshot has one live row. Reads the key columns of every data file, and applies deletes.

Keys are compared as the numbers and bytes that Iceberg defines, not as another engine's values. DuckDB groups them,
and moves what does not fit into memory to a temporary folder. Only if keys are repeated, the files are read again.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType

from lakesink_protocol.errors import SettingsError
from lakesink_protocol.suggest import did_you_mean
from lakesink_tools.audit.key_proof import KeyProof, KeyQuestion
from lakesink_tools.past.as_of import at_snapshot
from lakesink_tools.past.changes import files_of, read_files

_REPEATED = "CREATE TABLE repeated AS SELECT {0}, count(*) AS n FROM keys GROUP BY {0} HAVING count(*) > 1"
_SURPLUS = "SELECT count(*), coalesce(sum(n - 1), 0) FROM repeated"
_FILES = "SELECT place, count(*) FROM keys JOIN repeated USING ({}) GROUP BY place ORDER BY count(*) DESC, place"
_VALUES = "SELECT * FROM repeated ORDER BY n DESC, {} LIMIT 20"
_MEMORY = "1GB"
_THREADS = 4


def prove_keys(table: Table, question: KeyQuestion) -> KeyProof:
    """Look for keys with several live rows.

    Raises:
        SettingsError: The table has no such key, or no such snapshot.
        CatalogError: The snapshot has equality deletes, which PyIceberg cannot apply.
    """
    fields = _key_fields(table, question.columns)
    names = tuple(table.schema().find_column_name(field.field_id) or field.name for field in fields)
    snapshot_id = _snapshot_id(table, question.at)
    if snapshot_id is None:
        return KeyProof(None, names, 0, 0, 0, 0, 0)
    whole = at_snapshot(table, snapshot_id)
    # PyIceberg refuses a file without a required column, though its partition has the value.
    optional = (NestedField(one.field_id, one.name, one.field_type, required=False) for one in fields)
    keys = _Keys(whole, Schema(*optional), files_of(whole, snapshot_id))
    config: dict[str, Any] = {"memory_limit": _MEMORY, "threads": min(os.cpu_count() or 1, _THREADS)}
    config["preserve_insertion_order"] = False
    with (
        tempfile.TemporaryDirectory(prefix="lakesink-keys-") as spill,
        duckdb.connect(config=config | {"temp_directory": spill}) as connection,
    ):
        return _proof(connection, keys, names, snapshot_id, show_values=question.show_values)


def _proof(
    connection: duckdb.DuckDBPyConnection, keys: "_Keys", names: tuple[str, ...], snapshot_id: int, *, show_values: bool
) -> KeyProof:
    text = ", ".join(keys.columns)
    connection.register("keys", keys.reader())
    connection.execute(_REPEATED.format(text))
    [(repeated, surplus)] = connection.sql(_SURPLUS).fetchall()
    rows, nulls = keys.rows, keys.nulls
    files, values = [], None
    if repeated:
        connection.register("keys", keys.reader())  # a reader is read once
        files = connection.sql(_FILES.format(text)).fetchall()
    if repeated and show_values:
        found = connection.sql(_VALUES.format(text)).to_arrow_table()
        columns = [
            _decoded(found.column(name).combine_chunks(), field.type)
            for name, field in zip(keys.columns, keys.arrow, strict=True)
        ]
        values = pa.table([*columns, found.column("n")], names=[*names, "rows"])
    return KeyProof(
        snapshot_id=snapshot_id,
        columns=names,
        rows=rows,
        keys=rows - nulls - int(surplus),
        repeated=repeated,
        surplus=int(surplus),
        nulls=nulls,
        files=tuple((keys.tasks[place].file.file_path, count) for place, count in files),
        values=values,
    )


@dataclass(slots=True)
class _Keys:
    """The live keys of some files, encoded; `place` is the number of the file."""

    table: Table
    schema: Schema
    tasks: Sequence[FileScanTask]
    rows: int = 0  # of the last reader, as are the nulls
    nulls: int = field(default=0, init=False)

    @property
    def arrow(self) -> pa.Schema:
        return schema_to_pyarrow(self.schema, include_field_ids=False)

    @property
    def columns(self) -> list[str]:
        return [f"k{place}" for place in range(len(self.schema.fields))]

    def reader(self) -> pa.RecordBatchReader:
        types = [*(_encoded(pa.nulls(0, field.type)).type for field in self.arrow), pa.int32()]
        schema = pa.schema(list(zip([*self.columns, "place"], types, strict=True)))
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema))

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        self.rows = self.nulls = 0
        for place, task in enumerate(self.tasks):
            for batch in read_files(self.table, self.schema, [task]):
                keys = batch.drop_null()
                self.rows += batch.num_rows
                self.nulls += batch.num_rows - keys.num_rows
                columns = [_encoded(column) for column in keys.columns]
                at = pa.repeat(pa.scalar(place, pa.int32()), keys.num_rows)
                yield pa.record_batch([*columns, at], schema=schema)


def _encoded(column: pa.Array) -> pa.Array:
    """Whole numbers, decimals, booleans and bytes: DuckDB has no values of its own for them, like infinite dates."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _encoded(column.storage)
    if pa.types.is_date32(kind):
        return column.view(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return column.view(pa.int64())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_fixed_size_binary(kind):
        return pc.cast(column, pa.large_binary())
    return column


def _decoded(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values that were encoded."""
    if isinstance(kind, pa.BaseExtensionType):
        return _decoded(column, kind.storage_type)
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return column.view(kind)
    return pc.cast(column, kind)


def _key_fields(table: Table, columns: Sequence[str]) -> list[NestedField]:
    schema = table.schema()
    names = list(columns) or sorted(schema.identifier_field_names())
    if not names:
        raise _invalid(
            "The table has no identifier fields, so its key is unknown.", "Name its columns: --key order_id."
        )
    top = {field.name: field for field in schema.fields}
    for name in names:
        if name not in top:
            raise _invalid(f"There is no column {name[:60]!r} to be a key.", did_you_mean(name, top))
        kind = top[name].field_type
        if not isinstance(kind, PrimitiveType) or isinstance(kind, FloatType | DoubleType):
            raise _invalid(f"The column {name[:60]!r} cannot be a key: it is {kind}.", "Name another column.")
    return [top[name] for name in names]


def _snapshot_id(table: Table, at: str) -> int | None:
    refs = table.metadata.refs
    if at in refs:
        return refs[at].snapshot_id
    if at == "main":
        return None
    if at.isascii() and at.isdigit() and table.snapshot_by_id(int(at)) is not None:
        return int(at)
    action = did_you_mean(at, refs) or "lakesink log shows the snapshots."
    raise _invalid(f"The table has no branch, tag or snapshot {at[:60]!r}.", action)


def _invalid(what: str, action: str) -> SettingsError:
    return SettingsError("OPTION_INVALID", what, action=action)
