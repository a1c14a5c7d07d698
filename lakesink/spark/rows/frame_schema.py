"""A DataFrame's schema in Arrow, and the case of its names."""

import inspect
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, types
from pyspark.sql.pandas.types import to_arrow_schema

from lakesink_catalog.spark_types import sql_name
from lakesink_protocol.errors import WriteError

_CASTS = {
    "variant": "to_json({column})",
    "interval": "CAST({column} AS STRING)",
    "geometry": "ST_AsBinary({column})",
    "geography": "ST_AsBinary({column})",
    "void": "CAST({column} AS STRING)",
}
"""Conversions to a type that a table supports, by the first word of the unsupported type's name."""
_SHOWN = 60
Path = tuple[str, ...]


def arrow_schema(schema: types.StructType, *, large: bool = False) -> pa.Schema:
    """A DataFrame's schema in Arrow, with zoned timestamps in UTC; `large` means 64-bit offsets."""
    zoned: dict[str, Any] = (
        {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    )  # required since Spark 4.3
    for path, kind in _unwritable(schema, ()):
        if not isinstance(kind, types.DayTimeIntervalType):  # a custom sink may support it: Arrow's duration is exact
            raise _unsupported(path, kind)
    try:
        return to_arrow_schema(_as_text(schema), prefers_large_types=large, **zoned)
    except (PySparkException, pa.ArrowException) as error:
        reason = error.getMessage() if isinstance(error, PySparkException) else str(error)
        raise WriteError.of("TYPE_UNSUPPORTED.not_sent", reason=reason) from None


def stored_schema(schema: types.StructType) -> pa.Schema:
    """`arrow_schema` for rows of a table or of files; raises WriteError for a type that these cannot store exactly."""
    for path, kind in _unwritable(schema, ()):
        raise _unsupported(path, kind)
    return arrow_schema(schema)


def is_case_sensitive(session: SparkSession) -> bool:
    """True if the session distinguishes column names by their case."""
    return str(session.conf.get("spark.sql.caseSensitive")).lower() == "true"


def _unwritable(kind: types.DataType, path: Path) -> Iterator[tuple[Path, types.DataType]]:
    """Types that a table cannot store exactly; Arrow would turn VARIANT, GEOMETRY and others into structs."""
    match kind:
        case types.StructType(fields=fields) if fields or not path:
            for field in fields:
                yield from _unwritable(field.dataType, (*path, field.name))
        case types.ArrayType(elementType=element):
            yield from _unwritable_part(element, (*path, "element"))
        case types.MapType(keyType=key, valueType=value):
            yield from _unwritable_part(key, (*path, "key"))
            yield from _unwritable_part(value, (*path, "value"))
        case types.StructType() | types.UserDefinedType():
            yield path, kind
        case _ if kind.typeName() != "void" and any(kind.simpleString().startswith(word) for word in _CASTS):
            yield path, kind


def _unwritable_part(kind: types.DataType, path: Path) -> Iterator[tuple[Path, types.DataType]]:
    """Refuse NULL-typed elements: a NULL-typed column can take its type from the table, its elements cannot."""
    if isinstance(kind, types.NullType):
        yield path, kind
    yield from _unwritable(kind, path)


def _as_text(kind: Any) -> Any:
    """Replace CHAR and VARCHAR by STRING: the values are equal, and Arrow has one type for all of them."""
    match kind:
        case types.CharType() | types.VarcharType():
            return types.StringType()
        case types.StructType(fields=fields):
            return types.StructType(
                [types.StructField(part.name, _as_text(part.dataType), part.nullable, part.metadata) for part in fields]
            )
        case types.ArrayType(elementType=element, containsNull=nullable):
            return types.ArrayType(_as_text(element), nullable)
        case types.MapType(keyType=key, valueType=value, valueContainsNull=nullable):
            return types.MapType(_as_text(key), _as_text(value), nullable)
    return kind


def _unsupported(path: Path, kind: types.DataType) -> WriteError:
    column, name = ".".join(path), kind.simpleString().upper()
    if isinstance(kind, types.UserDefinedType):
        name = f"{type(kind).__name__} (user-defined)"
    cast = next((text for word, text in _CASTS.items() if name.lower().startswith(word)), "")
    if isinstance(kind, types.StructType):
        name = "STRUCT without fields"
        action = f"Leave {column!r} out, or give it a field: a table cannot store a STRUCT without fields."
    elif cast and len(path) == 1:
        written = cast.format(column=sql_name(column))
        action = f"Convert it in the query, for example {written} AS {sql_name(column)}, or leave it out."
    else:
        action = f"Convert {column!r} in the query to a type that a table supports, or leave it out."
    return WriteError.of("TYPE_UNSUPPORTED", column=_short(column), name=_short(name), action=action)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
