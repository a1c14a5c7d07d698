"""Counts with DuckDB, which shares no code with lakesink: the same query over the source's text and the data files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from lakesink_tools.demo.flights import COLUMNS, NULL_TEXTS

_FILES = "read_parquet(?, hive_partitioning = false)"
"""Without Hive partitions: DuckDB would prefer folders like ``month=7`` to the columns of the files."""
_TYPES = ", ".join(
    f"'{name}': '{'TIMESTAMPTZ' if pa.types.is_timestamp(kind) else 'VARCHAR' if kind == pa.string() else 'INTEGER'}'"
    for name, kind in COLUMNS.items()
)
_MEASURES = ", ".join(["count(*)", "sum(distance)", *(f"count(*) - count({name})" for name in COLUMNS)])


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals of a set of flights."""

    rows: int
    distance: int  # sum of the column distance, miles
    nulls: Mapping[str, int]  # NULLs by column, without the columns that have none


@dataclass(frozen=True, slots=True)
class Comparison:
    """Source and table, counted in the same way and compared row by row."""

    source: Counts  # the package's text file
    table: Counts  # the data files of the snapshot
    missing: int  # rows of the source that the table lacks, counted as a multiset
    surplus: int  # rows of the table that the source lacks, counted as a multiset


def compare(csv: Path, row_limit: int, data_files: Sequence[str]) -> Comparison:
    """Count the first flights of the source and the rows of the data files, and compare them in both directions.

    The flights are ordered by day and then as in the file. Data files are local paths or ``file:`` URIs.
    """
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")  # numbers the rows in the order of the file
        connection.execute(
            f"CREATE TABLE source AS SELECT * EXCLUDE line FROM (SELECT *, row_number() OVER () AS line "
            f"FROM read_csv(?, header = true, columns = {{{_TYPES}}}, nullstr = {list(NULL_TEXTS)}))"
            " ORDER BY month, day, line LIMIT ?",
            [str(csv), row_limit],
        )
        connection.execute("RESET threads")
        columns = ", ".join(COLUMNS)
        connection.execute(f"CREATE TABLE target AS SELECT {columns} FROM {_FILES}", [list(data_files)])
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
        [(rows,)] = connection.execute(f"SELECT count(*) FROM {_FILES}", [list(data_files)]).fetchall()
        return int(rows)


def _count(connection: duckdb.DuckDBPyConnection, relation: str) -> Counts:
    [(rows, distance, *nulls)] = connection.execute(f"SELECT {_MEASURES} FROM {relation}").fetchall()
    return Counts(int(rows), int(distance or 0), {name: n for name, n in zip(COLUMNS, nulls, strict=True) if n})


def _difference(connection: duckdb.DuckDBPyConnection, left: str, right: str) -> int:
    both = f"SELECT * FROM {left} EXCEPT ALL SELECT * FROM {right}"
    [(rows,)] = connection.execute(f"SELECT count(*) FROM ({both})").fetchall()
    return int(rows)
