"""Rows of a table as records: the row as JSON, keyed by its key columns as JSON. Imports PyArrow only."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakesink.read.values import readable_schema
from lakesink.rows.lines import LineEncoder
from lakesink.rows.schema import parse_schema
from lakesink_protocol.errors import SettingsError, WriteError
from lakesink_protocol.redact import describe, shown
from lakesink_protocol.suggest import did_you_mean

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


@dataclass(frozen=True, slots=True)
class RowRecords:
    """Makes records of the rows of one schema; without key columns, records have no key."""

    schema: pa.Schema
    keys: Sequence[str]

    @classmethod
    def of_schema(cls, schema_json: str, keys: Sequence[str]) -> "RowRecords":
        """For rows as `lakesink.read.file_rows` reads them in this schema of the table."""
        schema = readable_schema(parse_schema(schema_json))
        for key in keys:
            if key not in schema.names:
                raise SettingsError.of("OUTBOX_KEY", key=shown(key, 60), near=did_you_mean(key, schema.names))
        return cls(schema, keys)

    @property
    def key_schema(self) -> pa.Schema:
        """The columns of the key."""
        return pa.schema([self.schema.field(name) for name in self.keys])

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """One record for each row."""
        return pa.RecordBatch.from_arrays([self.keys_of(rows), _lines(rows, self.schema)], schema=SCHEMA)

    def removals(self, keys: Sequence[bytes]) -> pa.RecordBatch:
        """One record without a value for each key."""
        return pa.RecordBatch.from_arrays(
            [pa.array(keys, pa.binary()), pa.nulls(len(keys), pa.binary())], schema=SCHEMA
        )

    def keys_of(self, rows: pa.RecordBatch) -> pa.Array:
        """The key of each row; `rows` can have other columns too."""
        if not self.keys:
            return pa.nulls(rows.num_rows, pa.binary())
        return _lines(rows.select(list(self.keys)), self.key_schema)


def _lines(rows: pa.RecordBatch, schema: pa.Schema) -> pa.Array:
    """JSON without line breaks of its own: each row is one line."""
    try:
        lines = LineEncoder(schema).encode(rows).split(b"\n")[:-1]
    except ValueError as error:
        raise WriteError.of("LOSSY_VALUE.json", error=describe(error)[:120]) from error
    return pa.array(lines, pa.binary())
