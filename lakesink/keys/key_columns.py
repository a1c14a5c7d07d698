"""The key and sequence columns of a table: their names in keys files and scans, and their types. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakesink.rows.schema import Primitive, parse_schema

_DUCKDB: Mapping[str, str] = {
    "boolean": "BOOLEAN",
    "int": "INTEGER",
    "long": "BIGINT",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "string": "VARCHAR",
    "uuid": "BLOB",
    "binary": "BLOB",
}
"""Types with the same order and equality as Iceberg's; a fixed is a BLOB too."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A top-level column of the key or the sequence; `alias` is its name in keys files and scans."""

    field_id: int
    name: str
    kind: Primitive
    alias: str

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of its values."""
        return self.kind.arrow

    @property
    def duckdb(self) -> str:
        """The DuckDB type of its values."""
        if self.kind.decimal:
            return "DECIMAL({}, {})".format(*self.kind.decimal)
        return _DUCKDB["binary"] if self.kind.fixed_bytes else _DUCKDB[self.kind.name]


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns by which rows are located and compared."""

    keys: tuple[KeyColumn, ...]
    sequences: tuple[KeyColumn, ...] = ()

    @property
    def all(self) -> tuple[KeyColumn, ...]:
        """Key and sequence columns."""
        return self.keys + self.sequences

    @property
    def key_names(self) -> list[str]:
        """The aliases of the key columns."""
        return [column.alias for column in self.keys]

    @property
    def sequence_names(self) -> list[str]:
        """The aliases of the sequence columns."""
        return [column.alias for column in self.sequences]


def key_columns(schema_json: str, key_ids: Sequence[int], sequence_ids: Sequence[int] = ()) -> KeyColumns:
    """The columns with these field ids, which the schema has at its top level as primitive columns."""
    fields = {field.field_id: field for field in parse_schema(schema_json).fields}

    def column(field_id: int, letter: str) -> KeyColumn:
        field = fields[field_id]
        assert isinstance(field.type, Primitive)
        assert not field.type.is_floating
        return KeyColumn(field_id, field.name, field.type, f"{letter}{field_id}")

    return KeyColumns(
        tuple(column(field_id, "k") for field_id in key_ids), tuple(column(field_id, "s") for field_id in sequence_ids)
    )
