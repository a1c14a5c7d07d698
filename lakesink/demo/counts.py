"""Counting by DuckDB, which shares no code with lakesink: the same query over the source's text and over data files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from lakesink.demo.flights import COLUMNS, NULL_TEXTS

_FILES = "read_parquet(?, hive_partitioning = false)"
"""Not by folders like ``month=7``, which DuckDB takes for columns, before those of the files."""
_TYPES = ", ".join(
    f"'{name}': '{'TIMESTAMPTZ' if pa.types.is_timestamp(kind) else 'VARCHAR' if kind == pa.string() else 'INTEGER'}'"
    for name, kind in COLUMNS.items()
)
_MEASURES = ", ".join(["count(*)", "sum(distance)", *(f"count(*) - count({name})" for name in COLUMNS)])


@dataclass(frozen=True, slots=True)
class Counts:
    """What a set of flights adds up to.

    Attributes:
        rows: Flights.
        distance: Sum of the column distance, miles.
        nulls: NULLs by column, without the columns that have none.
    """

    rows: int
    distance: int
    nulls: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Source and table, counted alike, and compared row by row.

    Attributes:
        source: The package's text file.
        table: The data files of the snapshot.
        missing: Rows of the source that the table lacks, doubles counted.
        surplus: Rows of the table that the source lacks, doubles counted.
    """

    source: Counts
    table: Counts
    missing: int
    surplus: int


def compare(csv: Path, row_limit: int, data_files: Sequence[str]) -> Comparison:
    """Count the first flights of the source and the rows of the data files, and subtract each from the other.

    Args:
        csv: As the package has it.
        row_limit: How many flights, by day and then as in the file.
        data_files: Parquet files, local paths or ``file:`` URIs.
    """
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")  # so that rows are numbered in the order of the file
        connection.execute(
            f"CREATE TABLE source AS SELECT * EXCLUDE line FROM (SELECT *, row_number() OVER () AS line "  # noqa: S608 - constants
            f"FROM read_csv(?, header = true, columns = {{{_TYPES}}}, nullstr = {list(NULL_TEXTS)}))"
            " ORDER BY month, day, line LIMIT ?",
            [str(csv), row_limit],
        )
        connection.execute("RESET threads")
        columns = ", ".join(COLUMNS)
        connection.execute(f"CREATE TABLE target AS SELECT {columns} FROM {_FILES}", [list(data_files)])  # noqa: S608 - constants
        return Comparison(
            source=_count(connection, "source"),
            table=_count(connection, "target"),
            missing=_difference(connection, "source", "target"),
            surplus=_difference(connection, "target", "source"),
        )


def count_rows(data_files: Sequence[str]) -> int:
    """Rows in Parquet files."""
    if not data_files:
        return 0
    with duckdb.connect() as connection:
        return _single(connection.execute(f"SELECT count(*) FROM {_FILES}", [list(data_files)]))  # noqa: S608 - constants


def _count(connection: duckdb.DuckDBPyConnection, relation: str) -> Counts:
    row = connection.execute(f"SELECT {_MEASURES} FROM {relation}").fetchone()  # noqa: S608 - constants
    assert row is not None
    rows, distance, *nulls = row
    return Counts(int(rows), int(distance or 0), {name: n for name, n in zip(COLUMNS, nulls, strict=True) if n})


def _difference(connection: duckdb.DuckDBPyConnection, left: str, right: str) -> int:
    both = f"SELECT * FROM {left} EXCEPT ALL SELECT * FROM {right}"  # noqa: S608 - constants
    return _single(connection.execute(f"SELECT count(*) FROM ({both})"))  # noqa: S608 - constants


def _single(result: duckdb.DuckDBPyConnection) -> int:
    row = result.fetchone()
    assert row is not None
    return int(row[0])
