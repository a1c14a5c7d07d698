"""Independent readers of a table, all to one form: rows of plain values in which equal means the same bits."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from datafusion import SessionContext
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from testkit.tasks import exactly, local
from tests.writer.random_tables import ROW

Row = Mapping[str, Any]


def by_pyiceberg(table: Table) -> pa.Table:
    """PyIceberg's scan."""
    return table.scan().to_arrow()


def by_duckdb(table: Table) -> pa.Table:
    """DuckDB over the files that PyIceberg plans: values come from the files alone, never from their paths."""
    paths = [local(task.file.file_path) for task in table.scan().plan_files()]
    if not paths:
        return table.schema().as_arrow().empty_table()
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        return connection.read_parquet(paths, hive_partitioning=False).to_arrow_table()


def by_field_ids(table: Table) -> pa.Table:
    """DuckDB over the same files, its columns found by field id alone: the names in the files may be old ones."""
    paths = [local(task.file.file_path) for task in table.scan().plan_files()]
    if not paths:
        return table.schema().as_arrow().empty_table()
    columns = (
        f"{field.field_id}: {{name: {_text(field.name)}, type: {_text(_duckdb_type(field.field_type))},"
        " default_value: NULL}"
        for field in table.schema().fields
    )
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        query = f"from read_parquet({paths}, schema = map {{{', '.join(columns)}}})"
        return connection.sql(query).to_arrow_table()


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _duckdb_type(kind: IcebergType) -> str:
    match kind:
        case StructType():
            fields = (f'"{f.name.replace(chr(34), chr(34) * 2)}" {_duckdb_type(f.field_type)}' for f in kind.fields)
            return f"struct({', '.join(fields)})"
        case ListType():
            return f"{_duckdb_type(kind.element_type)}[]"
        case MapType():
            return f"map({_duckdb_type(kind.key_type)}, {_duckdb_type(kind.value_type)})"
        case FixedType() | BinaryType():
            return "blob"
        case _:
            return str(kind)


def by_datafusion(table: Table) -> pa.Table:
    """The Rust implementation of Iceberg, planning and all, through DataFusion."""
    context = SessionContext()
    context.register_table("t", table)
    return context.table("t").to_arrow_table()


READERS: Mapping[str, Callable[[Table], pa.Table]] = {
    "PyIceberg": by_pyiceberg,
    "DuckDB": by_duckdb,
    "DataFusion": by_datafusion,
}


def canonical(rows: pa.Table, schema: Schema) -> list[dict[str, Any]]:
    """All rows, ordered by their number, each value in the one form of its type."""
    assert set(rows.column_names) == {field.name for field in schema.fields}
    return canonical_rows(rows.to_pylist(), schema)


def canonical_rows(rows: Iterable[Row], schema: Schema) -> list[dict[str, Any]]:
    """As `canonical`, of rows as Arrow's `to_pylist` gives them."""
    struct = schema.as_struct()
    return sorted((_canonical(struct, row) for row in rows), key=lambda row: row[ROW])


def _canonical(kind: IcebergType, value: Any) -> Any:
    if value is None:
        return None
    match kind:
        case StructType():
            assert set(value) == {field.name for field in kind.fields}
            return {field.name: _canonical(field.field_type, value[field.name]) for field in kind.fields}
        case ListType():
            return [_canonical(kind.element_type, element) for element in value]
        case MapType():
            pairs = [(_canonical(kind.key_type, key), _canonical(kind.value_type, part)) for key, part in value]
            return sorted(pairs, key=repr)
        case _:
            return _canonical_primitive(kind, value)


def _canonical_primitive(kind: IcebergType, value: Any) -> Any:
    match kind:
        case UUIDType():
            return _uuid(value)
        case DecimalType():
            assert isinstance(value, Decimal)
            return value.as_tuple()
        case TimestamptzType():
            assert isinstance(value, datetime)
            assert value.tzinfo is not None
            return value.astimezone(UTC)
        case TimestampType():
            assert isinstance(value, datetime)
            assert value.tzinfo is None
            return value
        case _:
            return exactly(value)


def _uuid(value: Any) -> uuid.UUID:
    if isinstance(value, bytes):
        return uuid.UUID(bytes=value)
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)
