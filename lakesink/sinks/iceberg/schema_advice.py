"""Says how the schema of rows differs from a table's, and which commands change the table. Pure."""

from collections.abc import Callable, Iterator, Mapping

from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from lakesink_catalog.commit.evolution import parse_type
from lakesink_catalog.commit.premises import Path, columns
from lakesink_catalog.spark_types import sql_name, sql_type
from lakesink_protocol.change import SchemaChange

MOST_SHOWN = 20
_TRINO: Mapping[type[IcebergType], str] = {
    IntegerType: "integer",
    LongType: "bigint",
    FloatType: "real",
    StringType: "varchar",
    TimeType: "time(6)",
    TimestampType: "timestamp(6)",
    TimestamptzType: "timestamp(6) with time zone",
    FixedType: "varbinary",
    BinaryType: "varbinary",
}
"""Names that differ from Iceberg's own."""


def difference_lines(change: SchemaChange, schema: Schema) -> tuple[str, ...]:
    """The differences as a table of text: column, its type in the table, its type in the query."""
    present = columns(schema)
    rows = [
        ("column", "in the table", "in the query"),
        *((_dotted(one.column), "-", spark_type(parse_type(one.type_json))) for one in change.added),
        *(
            (_dotted(one.column), spark_type(present[one.column].field_type), spark_type(parse_type(one.type_json)))
            for one in change.widened
        ),
        *((_dotted(column), f"{spark_type(present[column].field_type)} NOT NULL", "-") for column in change.optional),
    ]
    shown = rows[: MOST_SHOWN + 1]
    widths = [max(len(row[at]) for row in shown) for at in range(3)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in shown]
    left_out = len(rows) - len(shown)
    return (*lines, *([f"and {left_out} more"] if left_out else []))


def commands(change: SchemaChange, table: Path) -> tuple[str, ...]:
    """The commands that change the table, one text for each of PyIceberg, Spark SQL and Trino.

    Trino changes no field within a map, and makes no nested field optional, so its text is left out then.
    """
    if len(change.added) + len(change.widened) + len(change.optional) > MOST_SHOWN:
        return ()
    paths = [one.column for one in (*change.added, *change.widened)]
    trino_can = all(len(column) == 1 for column in change.optional) and not any("value" in path[1:-1] for path in paths)
    return (
        f"In PyIceberg: {'; '.join(_in_pyiceberg(change))}",
        f"In Spark SQL: {'; '.join(_in_sql(change, table, _SPARK))}",
        *([f"In Trino: {'; '.join(_in_sql(change, table, _TRINO_SQL))}"] if trino_can else []),
    )


def spark_type(kind: IcebergType) -> str:
    """The type in Spark's spelling."""
    return sql_type(schema_to_pyarrow(kind))


def trino_type(kind: IcebergType) -> str:
    """The type in Trino's spelling."""
    match kind:
        case StructType(fields=fields):
            inner = ", ".join(f"{_trino_name(field.name)} {trino_type(field.field_type)}" for field in fields)
            return f"row({inner})"
        case ListType(element_type=element):
            return f"array({trino_type(element)})"
        case MapType(key_type=key, value_type=value):
            return f"map({trino_type(key)}, {trino_type(value)})"
        case DecimalType(precision=precision, scale=scale):
            return f"decimal({precision}, {scale})"
    return _TRINO.get(type(kind), str(kind))


def _in_pyiceberg(change: SchemaChange) -> Iterator[str]:
    yield "update = table.update_schema()"
    for one in change.added:
        yield f"update.add_column({one.column!r}, {parse_type(one.type_json)!r})"
    for one in change.widened:
        yield f"update.update_column({one.column!r}, {parse_type(one.type_json)!r})"
    for column in change.optional:
        yield f"update.make_column_optional({column!r})"
    yield "update.commit()"


_Sql = tuple[Callable[..., str], Callable[[IcebergType], str], str]


def _in_sql(change: SchemaChange, table: Path, dialect: _Sql) -> Iterator[str]:
    name, type_of, set_type = dialect
    alter = f"ALTER TABLE {name(*table)}"
    for one in change.added:
        yield f"{alter} ADD COLUMN {name(*one.column)} {type_of(parse_type(one.type_json))}"
    for one in change.widened:
        yield f"{alter} ALTER COLUMN {name(*one.column)} {set_type} {type_of(parse_type(one.type_json))}"
    for column in change.optional:
        yield f"{alter} ALTER COLUMN {name(*column)} DROP NOT NULL"


def _trino_name(*path: str) -> str:
    """Always quoted: Trino reserves many words."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in path)


_SPARK: _Sql = (sql_name, spark_type, "TYPE")
_TRINO_SQL: _Sql = (_trino_name, trino_type, "SET DATA TYPE")


def _dotted(path: Path) -> str:
    return ".".join(path)
