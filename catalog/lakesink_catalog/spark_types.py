"""Types in the spelling of Spark SQL, for messages: users write queries and casts with these names. Pure."""

import re
from collections.abc import Mapping

import pyarrow as pa

_PLAIN: Mapping[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    pa.null(): "VOID",
    pa.uuid(): "STRING",  # Spark reads and writes Iceberg's uuid as text
}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def sql_type(kind: pa.DataType) -> str:
    """The Spark SQL type of an Arrow type; Arrow's own name where Spark has no such type."""
    types = pa.types
    if types.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return f"STRUCT<{', '.join(f'{sql_name(field.name)}: {sql_type(field.type)}' for field in fields)}>"
    if types.is_map(kind):
        return f"MAP<{sql_type(kind.key_type)}, {sql_type(kind.item_type)}>"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return f"ARRAY<{sql_type(kind.value_type)}>"
    if types.is_dictionary(kind):
        return f"{sql_type(kind.value_type)} (dictionary)"
    return _leaf(kind)


def sql_name(*path: str) -> str:
    """A column name, quoted where a SQL expression needs it."""
    return ".".join(part if _PLAIN_NAME.fullmatch(part) else f"`{part.replace('`', '``')}`" for part in path)


def _leaf(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_timestamp(kind):
        return "TIMESTAMP_NTZ" if kind.tz is None else "TIMESTAMP"
    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if types.is_time(kind):
        return "TIME"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "STRING"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return "BINARY"
    return "BINARY" if types.is_binary_view(kind) else _PLAIN.get(kind, str(kind))
