"""Finds how the schema of rows differs from a table's; says so, and which commands change the table. Pure."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg import types
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from lakesink.rows.columns import NameRule, is_list
from lakesink.rows.task_errors import schema_mismatch, shown
from lakesink_catalog.commit.evolution import parse_type
from lakesink_catalog.commit.premises import Path, columns, is_promotion
from lakesink_catalog.spark_types import sql_name, sql_type
from lakesink_catalog.tables.arrow_schema import RESERVED_NAMES, iceberg_schema
from lakesink_protocol.change import ColumnType, SchemaChange
from lakesink_protocol.errors import WriteError

MOST_SHOWN = 20
_LONGEST_NAME_BYTES = 255
_MOST_DIGITS = 38
_TRINO: Mapping[type[types.IcebergType], str] = {
    types.IntegerType: "integer",
    types.LongType: "bigint",
    types.FloatType: "real",
    types.StringType: "varchar",
    types.TimeType: "time(6)",
    types.TimestampType: "timestamp(6)",
    types.TimestamptzType: "timestamp(6) with time zone",
    types.FixedType: "varbinary",
    types.BinaryType: "varbinary",
}
"""Names that differ from Iceberg's own."""


def difference_lines(change: SchemaChange, schema: Schema) -> tuple[str, ...]:
    """The differences as a table of text: column, its type in the table, its type in the query."""
    present = columns(schema)
    rows = [
        ("column", "in the table", "in the query"),
        *((".".join(one.column), "-", spark_type(parse_type(one.type_json))) for one in change.added),
        *(
            (".".join(one.column), spark_type(present[one.column].field_type), spark_type(parse_type(one.type_json)))
            for one in change.widened
        ),
        *((".".join(column), f"{spark_type(present[column].field_type)} NOT NULL", "-") for column in change.optional),
    ]
    first = rows[: MOST_SHOWN + 1]
    widths = [max(len(row[at]) for row in first) for at in range(3)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in first]
    left_out = len(rows) - len(first)
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


def spark_type(kind: types.IcebergType) -> str:
    """The type in Spark's spelling."""
    return sql_type(schema_to_pyarrow(kind))


def trino_type(kind: types.IcebergType) -> str:
    """The type in Trino's spelling."""
    match kind:
        case types.StructType(fields=fields):
            inner = ", ".join(f"{_trino_name(field.name)} {trino_type(field.field_type)}" for field in fields)
            return f"row({inner})"
        case types.ListType(element_type=element):
            return f"array({trino_type(element)})"
        case types.MapType(key_type=key, value_type=value):
            return f"map({trino_type(key)}, {trino_type(value)})"
        case types.DecimalType(precision=precision, scale=scale):
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


_Sql = tuple[Callable[..., str], Callable[[types.IcebergType], str], str]


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


@dataclass(slots=True)
class _Differences:
    """Compares columns by name."""

    rule: NameRule
    identifiers: Collection[int]
    added: list[ColumnType] = field(default_factory=list)
    widened: list[ColumnType] = field(default_factory=list)
    optional: list[Path] = field(default_factory=list)

    def compare_struct(self, incoming: Sequence[pa.Field], struct: types.StructType, path: Path) -> None:
        present = {self.rule.key(known.name): known for known in struct.fields}
        taken = {known.name.casefold(): known.name for known in struct.fields}
        for new in incoming:
            known = present.get(self.rule.key(new.name))
            if known is None:
                _check_names((*path, new.name), new.type, taken)
                self.added.append(new_column((*path, new.name), new.type))
            else:
                self._compare(new.type, known, (*path, known.name))
        arriving = {self.rule.key(new.name) for new in incoming}
        for known in struct.fields:
            if known.required and self.rule.key(known.name) not in arriving and known.field_id not in self.identifiers:
                self.optional.append((*path, known.name))

    def _compare(self, incoming: pa.DataType, present: types.NestedField, path: Path) -> None:
        match present.field_type:
            case types.StructType() as struct if pa.types.is_struct(incoming):
                self.compare_struct(list(incoming), struct, path)
            case types.ListType(element_field=element) if is_list(incoming):
                self._compare(incoming.value_type, element, (*path, element.name))
            case types.MapType(value_field=value) if pa.types.is_map(
                incoming
            ):  # Iceberg allows no change in a map's key
                self._compare(incoming.item_type, value, (*path, value.name))
            case types.PrimitiveType() as narrow:
                wide = _promoted(narrow, incoming)
                if wide is not None:
                    self.widened.append(ColumnType(path, wide.model_dump_json()))


def find_change(incoming: pa.Schema, schema: Schema, *, case_sensitive: bool) -> SchemaChange:
    """The change after which a table of this schema fits rows of the other one, as far as Iceberg allows it."""
    found = _Differences(NameRule(case_sensitive), schema.identifier_field_ids)
    found.compare_struct(list(incoming), schema.as_struct(), ())
    added = sorted(found.added, key=lambda one: one.column)
    return SchemaChange(tuple(added), tuple(found.widened), tuple(found.optional))


def new_column(path: Path, kind: pa.DataType) -> ColumnType:
    """A new column of the type that `create_table` would give it."""
    [converted] = iceberg_schema(pa.schema([pa.field(".".join(path), kind)])).fields
    return ColumnType(path, converted.field_type.model_dump_json())


def _check_names(path: Path, kind: pa.DataType, taken: dict[str, str]) -> None:
    """Check the name of a new column, and those within its type; `taken` has the names beside it, in one case."""
    name = path[-1]
    why = unfit_name(name, taken.get(name.casefold()), is_column=len(path) == 1)
    if why:
        column = shown(".".join(path)) if name.strip() else ".".join(path[:-1]) or name
        raise schema_mismatch(f"Column {column!r} {why}.", action="Rename it in the query, or leave it out.")
    taken[name.casefold()] = name
    _check_names_within(path, kind)


def unfit_names_within(path: Path, kind: pa.DataType) -> str:
    """Why other engines could not read a column with fields of these names; empty if they can."""
    try:
        _check_names_within(path, kind)
    except WriteError as error:
        return f"{error.what[:1].lower()}{error.what[1:].removesuffix('.')}"
    return ""


def _check_names_within(path: Path, kind: pa.DataType) -> None:
    if pa.types.is_struct(kind):
        taken: dict[str, str] = {}
        for inner in kind:
            _check_names((*path, inner.name), inner.type, taken)
    elif pa.types.is_map(kind):
        _check_names_within((*path, "key"), kind.key_type)
        _check_names_within((*path, "value"), kind.item_type)
    elif is_list(kind):
        _check_names_within((*path, "element"), kind.value_type)


def unfit_name(name: str, beside: str | None, *, is_column: bool) -> str:
    """Why other engines could not read the column; empty if they can."""
    if beside is not None:
        return f"differs only in case from {shown(beside)!r}, and most engines cannot distinguish them"
    if not name.strip():
        return "has an empty name"
    if len(name.encode()) > _LONGEST_NAME_BYTES:
        return f"has a name of more than {_LONGEST_NAME_BYTES} bytes"
    return "has a name that Iceberg reserves" if is_column and name.lower() in RESERVED_NAMES else ""


def _promoted(narrow: types.PrimitiveType, incoming: pa.DataType) -> types.IcebergType | None:
    """The wider type of a column that holds the incoming values too; None if it needs none, or there is none."""
    wide: types.IcebergType = narrow
    if incoming in (pa.int64(), pa.uint32()):
        wide = types.LongType()
    elif incoming == pa.float64():
        wide = types.DoubleType()
    elif pa.types.is_decimal(incoming) and 0 <= incoming.scale <= incoming.precision <= _MOST_DIGITS:
        wide = types.DecimalType(incoming.precision, incoming.scale)
    return wide if is_promotion(narrow, wide) else None
