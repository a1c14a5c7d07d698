"""Formats of the file sink's parts: names, extensions, codecs, and the column types that they store without loss."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakesink.rows.libraries import check_library
from lakesink.rows.task_errors import shown
from lakesink_catalog.spark_types import sql_type
from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import WriteError

PARQUET = "parquet"
JSON_LINES = "jsonl"
_TYPES = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_date32,
    pa.types.is_time,
    pa.types.is_timestamp,
)


@dataclass(frozen=True, slots=True)
class PartFormat:
    """One format of parts.

    Attributes:
        extensions: Extension by codec, the default codec first.
        is_json: True if maps must have string keys, and a column of type NULL is allowed.
    """

    name: str
    extensions: Mapping[str, str]
    is_json: bool


FORMATS: Mapping[str, PartFormat] = {
    PARQUET: PartFormat(
        PARQUET,
        dict.fromkeys(("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"), ".parquet"),
        is_json=False,
    ),
    JSON_LINES: PartFormat(JSON_LINES, {"uncompressed": ".jsonl", "gzip": ".jsonl.gz"}, is_json=True),
}


def check_part_schema(schema: pa.Schema, part_format: PartFormat) -> None:
    """Refuse columns that the format does not store, or that readers cannot distinguish, and an old PyArrow."""
    check_library("pyarrow", pa.__version__)
    doubled = [name for name, count in Counter(name.casefold() for name in schema.names).items() if count > 1]
    if doubled or not schema.names:
        twice = f"Two columns are named {shown(doubled[0])!r} if case is ignored." if doubled else ""
        raise WriteError(
            "COLUMNS_AMBIGUOUS",
            twice or "The rows have no columns.",
            data=DataState.NOT_IN,
            action="Give every column a unique name: Spark and DuckDB ignore the case of names.",
        )
    for field in schema:
        for path, kind, why in _unsuitable(field.name, field.type, part_format):
            raise WriteError(
                "TYPE_UNSUPPORTED",
                f"Column {shown(path)!r} is a {shown(sql_type(kind))}: {why}.",
                data=DataState.NOT_IN,
                action=f"Cast {path!r} in the query to a type that {part_format.name} files can store, or drop it.",
            )


def _unsuitable(path: str, kind: pa.DataType, part_format: PartFormat) -> Iterator[tuple[str, pa.DataType, str]]:
    if pa.types.is_struct(kind):
        if kind.num_fields == 0:
            yield path, kind, "a struct needs at least one field"
        if len({part.name.casefold() for part in kind}) < kind.num_fields:
            yield path, kind, "two of its field names are equal if case is ignored"
        for part in kind:
            yield from _unsuitable(f"{path}.{part.name}", part.type, part_format)
    elif pa.types.is_map(kind):
        if part_format.is_json and not pa.types.is_string(kind.key_type):
            yield path, kind, "JSON objects need STRING keys"
        yield from _unsuitable(f"{path}.key", kind.key_type, part_format)
        yield from _unsuitable(f"{path}.value", kind.item_type, part_format)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _unsuitable(f"{path}.element", kind.value_type, part_format)
    elif not _is_suitable(kind, part_format):
        yield path, kind, f"{part_format.name} files cannot store it without loss"


def _is_suitable(kind: pa.DataType, part_format: PartFormat) -> bool:
    if pa.types.is_null(kind):
        return part_format.is_json
    return any(is_kind(kind) for is_kind in _TYPES)
