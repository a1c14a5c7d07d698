"""Statistics are right: a predicate that lets an engine skip files finds the rows that it finds without skipping any.

Without: every condition is computed for every row, as a column of a query that has no condition.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from lakesink_catalog.connect.catalog import EMBEDDED_NAME
from lakesink_tools.engines.recipe import text_literal
from tests.interop.readers.engines import Engine
from tests.interop.readers.kinds import PRIMITIVES, SCHEMA
from tests.interop.readers.kinds import rows as some_rows
from tests.interop.readers.known import skipped_wrongly
from tests.interop.readers.tables import Told, streamed
from tests.readers.lake import Lake
from tests.writer.random_tables import ROW

pytestmark = [pytest.mark.interop, pytest.mark.nightly]

FOUND = Schema(NestedField(1, "place", LongType(), required=False), NestedField(2, "found", LongType(), required=False))
TYPES: Mapping[str, Mapping[type[PrimitiveType], str]] = {
    "spark": {TimestampType: "TIMESTAMP_NTZ", TimestamptzType: "TIMESTAMP"},
    "trino": {FloatType: "REAL", TimestampType: "TIMESTAMP(6)", TimestamptzType: "TIMESTAMP(6) WITH TIME ZONE"},
    "duckdb": {TimestampType: "TIMESTAMP", TimestamptzType: "TIMESTAMPTZ"},
    "flink": {TimestampType: "TIMESTAMP(6)", TimestamptzType: "TIMESTAMP_LTZ(6)"},
}
ALIKE = {FloatType: "FLOAT", DoubleType: "DOUBLE", DateType: "DATE", UUIDType: "UUID"}
OPERATORS = ("=", "<", "<=", ">", ">=")
COLUMNS = {
    "spark": tuple(PRIMITIVES),
    "trino": tuple(PRIMITIVES),
    "duckdb": tuple(PRIMITIVES),
    "flink": ("c_long", "c_double", "c_decimal38", "c_timestamp", "c_string", "c_binary"),
}


def literal(engine: str, kind: PrimitiveType, value: Any) -> str:
    """A value in an engine's words."""
    if isinstance(kind, BooleanType):
        return str(value).upper()
    if isinstance(kind, IntegerType | LongType):
        return str(value)
    if isinstance(kind, BinaryType | FixedType):
        shown = "".join(f"\\x{byte:02X}" for byte in value)
        return f"'{shown}'::BLOB" if engine == "duckdb" else f"X'{value.hex()}'"
    text = _text(value)
    if isinstance(kind, StringType) or (isinstance(kind, UUIDType) and engine == "spark"):
        return text_literal(text)
    if isinstance(kind, DecimalType):
        return f"CAST('{text}' AS DECIMAL({kind.precision}, {kind.scale}))"
    name = TYPES[engine].get(type(kind)) or ALIKE[type(kind)]
    return f"CAST({text_literal(text)} AS {name})"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN" if math.isnan(value) else repr(value))
    if isinstance(value, datetime):
        plain = value.replace(tzinfo=None).isoformat(" ", "microseconds")
        return plain if value.tzinfo is None else f"{plain} UTC"
    return str(value)


def predicates(engine: str, kind: PrimitiveType, column: str, values: Sequence[Any]) -> list[str]:
    """Conditions on a column: every operator at the ends of what it holds and at one value between."""
    ends = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
    chosen = {min(ends), max(ends), ends[len(ends) // 2]}
    said = [literal(engine, kind, value) for value in sorted(chosen)]
    operators = OPERATORS[:1] if isinstance(kind, BooleanType) else OPERATORS
    found = [f"{column} {operator} {value}" for value in said for operator in operators]
    return [*found, f"{column} IN ({', '.join(said)})", f"{column} IS NULL", f"{column} IS NOT NULL"]


def cases() -> list[tuple[str, str, str]]:
    plain = [(engine, "kinds", column) for engine in COLUMNS for column in COLUMNS[engine]]
    return [*plain, *(("trino", "by_truncate", column) for column in ("c_long", "c_decimal38", "c_string", "c_binary"))]


@pytest.mark.parametrize(("engine", "table", "column"), cases(), indirect=["engine"])
def test_what_is_found_by_skipping_files_is_what_is_there(
    engine: Engine, table: str, column: str, tables: dict[str, Told]
) -> None:
    source, number = engine.source(tables[table].load()), '"row"' if engine.name in ("trino", "duckdb") else "`row`"
    asked = predicates(engine.name, PRIMITIVES[column][0], column, PRIMITIVES[column][1])
    one_by_one = " UNION ALL ".join(
        f"SELECT {place} AS place, {number} AS found FROM {source} WHERE {condition}"
        for place, condition in enumerate(asked)
    )
    at_once = ", ".join(f"{condition} AS p{place}" for place, condition in enumerate(asked))
    looked = Schema(
        NestedField(1, "found", LongType(), required=False),
        *(NestedField(place + 2, f"p{place}", BooleanType(), required=False) for place in range(len(asked))),
    )
    found: dict[str, list[int]] = {condition: [] for condition in asked}
    for row in engine.rows(f"SELECT * FROM ({one_by_one}) AS t", FOUND):
        found[asked[row["place"]]].append(row["found"])
    everything = engine.rows(f"SELECT * FROM (SELECT {number} AS found, {at_once} FROM {source}) AS t", looked)
    there = {
        condition: sorted(row["found"] for row in everything if row[f"p{place}"])
        for place, condition in enumerate(asked)
    }
    values = {row[ROW]: row[column] for row in tables[table].head.rows}

    def judged(answers: Mapping[str, list[int]]) -> dict[str, list[int]]:
        return {
            condition: sorted(n for n in rows if not skipped_wrongly(engine.name, column, values[n], condition))
            for condition, rows in answers.items()
        }

    assert judged(found) == judged(there)
    assert sum(map(bool, there.values())) > len(asked) // 3


@pytest.mark.parametrize("engine", ["spark", "trino", "flink"], indirect=True)
def test_files_are_really_skipped(engine: Engine, home: Path) -> None:
    """The files that need not be looked at are not even there any more. DuckDB looks at some of them all the same."""
    name = f"skipped_{engine.name}"
    told = streamed(Lake(home, EMBEDDED_NAME), name, SCHEMA, some_rows)
    table = told.load()
    wanted = 2**63 - 1
    kept = {task.file.file_path for task in table.scan(row_filter=f"c_long = {wanted}").plan_files()}
    every = {task.file.file_path for task in table.scan().plan_files()}
    assert 0 < len(kept) < len(every)
    for path in every - kept:
        Path(path.removeprefix("file://")).unlink()
    with pytest.raises(engine.failure):
        engine.read(table, told.head.schema)
    number = Schema(NestedField(1, "found", LongType(), required=False))
    quote = "`" if engine.name in ("spark", "flink") else '"'
    query = f"SELECT {quote}row{quote} AS found FROM {engine.source(table)} WHERE c_long = {wanted}"
    assert sorted(row["found"] for row in engine.rows(query, number)) == sorted(
        row[ROW] for row in told.head.rows if row["c_long"] == wanted
    )
