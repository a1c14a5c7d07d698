"""Every engine in one shape: rows of a table as of now, of a snapshot or of a tag, and what its metadata tables say."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import MapType, StringType

from servers.duckdb_engine import DuckDB, DuckDBFailed
from servers.flink import Flink, FlinkFailed
from servers.spark_sql import SparkFailed, SparkSQL
from servers.trino import Trino, TrinoFailed
from tests.interop.readers.values import from_json

Rows = list[dict[str, Any]]
CATALOG = "lakehouse"


@dataclass(frozen=True, slots=True)
class At:
    """As of what a table is read; now, if neither is given."""

    snapshot_id: int | None = None
    tag: str | None = None


NOW = At()


class Engine(Protocol):
    """One engine that reads the tables."""

    @property
    def name(self) -> str:
        """One word."""

    @property
    def failure(self) -> type[Exception]:
        """What it raises in its own words."""

    def source(self, table: Table, at: At = NOW) -> str:
        """What follows FROM."""

    def rows(self, query: str, schema: Schema) -> Rows:
        """The answer of a query whose columns are the schema's, in the forms of Arrow's `to_pylist`."""

    def read(self, table: Table, schema: Schema, at: At = NOW) -> Rows:
        """All columns of a table."""


class SQL:
    """What all that speak SQL read alike."""

    def read(self: Engine, table: Table, schema: Schema, at: At = NOW) -> Rows:
        return self.rows(f"SELECT * FROM {self.source(table, at)}", schema)


@dataclass(frozen=True, slots=True)
class Spark(SQL):
    server: SparkSQL
    name: str = "spark"
    failure: type[Exception] = SparkFailed

    def source(self, table: Table, at: At = NOW) -> str:
        name = f"{CATALOG}.{'.'.join(table.name())}"
        if at.tag is not None:
            return f"{name} VERSION AS OF '{at.tag}'"
        return name if at.snapshot_id is None else f"{name} VERSION AS OF {at.snapshot_id}"

    def rows(self, query: str, schema: Schema) -> Rows:
        return _of_arrow(self.server.sql(query), schema)


@dataclass(frozen=True, slots=True)
class OfTrino(SQL):
    server: Trino
    name: str = "trino"
    failure: type[Exception] = TrinoFailed

    def source(self, table: Table, at: At = NOW) -> str:
        name = f"{CATALOG}.{'.'.join(table.name())}"
        if at.tag is not None:
            return f"{name} FOR VERSION AS OF '{at.tag}'"
        return name if at.snapshot_id is None else f"{name} FOR VERSION AS OF {at.snapshot_id}"

    def rows(self, query: str, schema: Schema) -> Rows:
        answer = self.server.sql(query)
        assert answer.columns == [column.name.lower() for column in schema.fields]
        return _of_json(answer.rows, schema)


@dataclass(frozen=True, slots=True)
class OfDuckDB(SQL):
    server: DuckDB
    setup: Sequence[str]
    name: str = "duckdb"
    failure: type[Exception] = DuckDBFailed

    def source(self, table: Table, at: At = NOW) -> str:
        assert at.tag is None, "DuckDB takes snapshots only"
        as_of = "" if at.snapshot_id is None else f", snapshot_from_id => {at.snapshot_id}"
        return f"iceberg_scan('{table.metadata_location}'{as_of})"

    def rows(self, query: str, schema: Schema) -> Rows:
        return _of_arrow(self.server.sql(*self.setup, query), schema)


@dataclass(frozen=True, slots=True)
class OfFlink(SQL):
    server: Flink
    name: str = "flink"
    failure: type[Exception] = FlinkFailed

    def source(self, table: Table, at: At = NOW) -> str:
        name = f"{CATALOG}.{'.'.join(table.name())}"
        if at.tag is not None:
            return f"{name} /*+ OPTIONS('tag'='{at.tag}') */"
        return name if at.snapshot_id is None else f"{name} /*+ OPTIONS('snapshot-id'='{at.snapshot_id}') */"

    def rows(self, query: str, schema: Schema) -> Rows:
        """Its JSON has no maps with other keys than text: these come as keys and values."""
        columns = [
            f"MAP_KEYS(`{column.name}`), MAP_VALUES(`{column.name}`)" if _is_odd(column.field_type) else ""
            for column in schema.fields
        ]
        if not any(columns):
            return _of_json(self.server.sql(query), schema)
        shown = ", ".join(part or f"`{column.name}`" for part, column in zip(columns, schema.fields, strict=True))
        found = self.server.sql(query.replace("SELECT *", f"SELECT {shown}", 1))
        return _of_json([_paired(row, columns) for row in found], schema)


@dataclass(frozen=True, slots=True)
class OfPyIceberg:
    """Needs no server; speaks no SQL."""

    name: str = "pyiceberg"
    failure: type[Exception] = AssertionError

    def source(self, table: Table, at: At = NOW) -> str:
        raise NotImplementedError

    def rows(self, query: str, schema: Schema) -> Rows:
        raise NotImplementedError

    def read(self, table: Table, schema: Schema, at: At = NOW) -> Rows:
        snapshot_id = at.snapshot_id
        if at.tag is not None:
            tagged = table.snapshot_by_name(at.tag)
            assert tagged is not None
            snapshot_id = tagged.snapshot_id
        found = table.scan(snapshot_id=snapshot_id).to_arrow()
        return _of_arrow(found, schema)


def _is_odd(kind: Any) -> bool:
    return isinstance(kind, MapType) and not isinstance(kind.key_type, StringType)


def _paired(row: Sequence[Any], columns: Sequence[str]) -> list[Any]:
    values = iter(row)
    return [_pair(next(values), next(values)) if odd else next(values) for odd in columns]


def _pair(keys: Any, values: Any) -> Any:
    return None if keys is None else (keys, values)


def _of_arrow(found: pa.Table, schema: Schema) -> Rows:
    assert found.column_names == [column.name for column in schema.fields]
    rows: Rows = found.to_pylist()
    return rows


def _of_json(found: Sequence[Sequence[Any]], schema: Schema) -> Rows:
    struct = schema.as_struct()
    return [from_json(struct, row) for row in found]
