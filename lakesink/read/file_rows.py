"""Reads the rows of data files, in executors. Imports PyArrow only."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakesink.keys.footers import footer_of
from lakesink.parquet.batch_size import rows_at_once
from lakesink.parquet.filesystem import open_input, scheme_of
from lakesink.parquet.single_value import decoded_array
from lakesink.read.values import apply, columns_of, converter, readable_schema, readable_type
from lakesink.rows.schema import Field, Primitive, Struct, parse_schema
from lakesink_protocol.errors import WriteError
from lakesink_protocol.redact import describe, redact
from lakesink_protocol.storage_errors import storage_trouble

BYTES_AT_ONCE = 8 * 2**20
PART_BYTES = 64 * 2**20
OPEN_COST_BYTES = 4 * 2**20
_LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class RowsFile:
    """A data file to read.

    Attributes:
        origin: What added it, for messages: batch or replay, and number.
        constants: Values of columns that its partition tells, by field id, in single-value form. A file that another
            program wrote need not have these columns.
    """

    path: str
    rows: int
    size_bytes: int
    origin: str
    constants: tuple[tuple[int, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class RowsPart:
    """The work of one task.

    Attributes:
        schema_json: The columns to read, in Iceberg's JSON form.
        file_io: Properties of the file system, without secrets.
        catalog_name: The catalog whose secrets an executor finds in its own configuration.
        names: Field ids by the names of top-level columns, for files of other programs that have no field ids.
    """

    files: Sequence[RowsFile]
    schema_json: str
    file_io: Mapping[str, str]
    catalog_name: str | None
    names: Mapping[str, int] = field(default_factory=dict)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows of all files, in blocks."""
        schema = parse_schema(self.schema_json)
        for file in self.files:
            yield from _rows(file, schema, self)


def divided(files: Iterable[RowsFile]) -> list[list[RowsFile]]:
    """The files of each task: many small ones together, because a task costs more than a small file."""
    parts: list[list[RowsFile]] = []
    left = 0
    for file in files:
        cost = file.size_bytes + OPEN_COST_BYTES
        if not parts or cost > left:
            parts.append([])
            left = PART_BYTES
        parts[-1].append(file)
        left -= cost
    return parts


def _rows(file: RowsFile, wanted: Struct, part: RowsPart) -> Iterator[pa.RecordBatch]:
    try:
        with open_input(file.path, part.file_io, part.catalog_name) as source:
            yield from _of_parquet(source, file, wanted, part.names)
    except FileNotFoundError as error:
        raise WriteError.of("READ_BATCH_GONE.file", origin=file.origin, path=redact(file.path)) from error
    except pa.ArrowException as error:
        raise _unreadable(file, describe(error)) from error
    except OSError as error:
        code = storage_trouble(error)
        if code is None:
            raise _unreadable(file, describe(error)) from error
        where = f"The file is {redact(file.path)!r}."
        raise WriteError.of(code, what="A file", error=describe(error), where=where) from error


def _of_parquet(source: Any, file: RowsFile, wanted: Struct, names: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
    is_remote = scheme_of(file.path) != "file"
    if is_remote and file.size_bytes <= PART_BYTES:  # its first rows are read twice
        source = pa.BufferReader(source.read())
    parquet = pq.ParquetFile(source, pre_buffer=is_remote, arrow_extensions_enabled=False)
    if parquet.metadata.num_rows != file.rows:
        raise _unreadable(file, f"its footer has {parquet.metadata.num_rows} rows, and its manifest has {file.rows}")
    columns, schema = columns_of(parquet.schema_arrow, wanted, names), readable_schema(wanted)
    if all(place is None for place, _, _ in columns) and not footer_of(parquet.schema_arrow, {}).has_ids:
        raise _unreadable(file, "it has no field ids")
    told = [_told(file, one) for one in wanted.fields]
    for batch in parquet.iter_batches(rows_at_once(parquet, BYTES_AT_ONCE)):
        arrays = [
            pa.repeat(constant, batch.num_rows) if place is None else apply(convert, batch.column(place))
            for (place, convert, _), constant in zip(columns, told, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(
            [_named(*one) for one in zip(arrays, schema.types, strict=True)], schema=schema
        )


def _named(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values under the present names: a nested type contains those of its fields."""
    return values if values.type == kind else values.view(kind) if pa.types.is_nested(kind) else values.cast(kind)


def _told(file: RowsFile, column: Field) -> pa.Scalar:
    """The value of a column as the file's partition tells it; NULL if it does not."""
    told = dict(file.constants).get(column.field_id)
    if told is None or not isinstance(column.type, Primitive):
        return pa.scalar(None, readable_type(column.type))
    value = decoded_array(column.type, told)
    return apply(converter(value.type, column.type), value)[0]


def _unreadable(file: RowsFile, why: str) -> WriteError:
    return WriteError.of("READ_FILE_UNREADABLE", origin=file.origin, why=why[:_LONGEST_REASON], path=redact(file.path))
