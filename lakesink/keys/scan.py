"""Finds the rows of changed keys in Parquet files, with DuckDB: one query for many files, by field ids.

DuckDB compares in the table's types, so text, decimals of 38 digits, and the ends of 64 bits are exact.
"""

import atexit
import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakesink.keys.key_columns import KeyColumns
from lakesink.keys.locate_errors import file_unreadable, on_local_disk, private_folder
from lakesink.keys.newest import CHANGE
from lakesink.rows.libraries import check_library
from lakesink_protocol.errors import WriteError
from lakesink_protocol.redact import describe

FILE, POSITION = "file", "pos"
_GLOB = str.maketrans({"*": "[*]", "?": "[?]", "[": "[[]"})
_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_file_cache": "false",  # the database lives as long as the process
    # DuckDB expects one row of files with a given schema, and would build its hash table of the files' rows.
    "disabled_optimizers": "build_side_probe_side,join_order",
    "preserve_insertion_order": "false",
}


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """What a scan may use of the machine.

    Attributes:
        keys_bytes: Keys that are searched for at once; more of them cost another scan of the files. DuckDB's hash table
            of keys is about three times as large, and it spills both sides of the join when memory gets short.
        kept_rows: Changes after which DuckDB stays open. It keeps the memory of a hash table that was large.
    """

    threads: int = 2
    memory_bytes: int = 256 * 2**20
    keys_bytes: int = 16 * 2**20
    kept_rows: int = 100_000


def found_schema(columns: KeyColumns) -> pa.Schema:
    """The columns of found rows: file by its place in the list, position, change, and the sequence of the live row."""
    fixed = [(FILE, pa.int32()), (POSITION, pa.int64()), (CHANGE, pa.int64())]
    return pa.schema([*fixed, *((column.alias, column.arrow) for column in columns.sequences)])


def find_rows(files: Sequence[str], changes: pa.Table, columns: KeyColumns, limits: ScanLimits) -> pa.Table:
    """The rows in local Parquet files whose key is among those of the changes.

    There is a file and a change. `changes` has `CHANGE` and the keys. Each file has field ids. What it lacks is NULL,
    so a file without a key column has no row of any key.
    """
    schema = found_schema(columns)
    keys = changes.select([CHANGE, *columns.key_names])
    names, query = [file.translate(_GLOB) for file in files], _query(columns)
    parts = min(-(-keys.nbytes // limits.keys_bytes), keys.num_rows)  # as few as the limit allows
    rows = -(-keys.num_rows // parts)
    with _connection(limits, stays=keys.num_rows <= limits.kept_rows) as (connection, error_class):
        try:
            found = []
            for start in range(0, keys.num_rows, rows):
                connection.register("changes", keys.slice(start, rows))
                found.append(connection.sql(query, params=[names]).to_arrow_table().cast(schema))
            return pa.concat_tables(found)
        except error_class as error:
            raise file_unreadable(files[0] if len(files) == 1 else f"{len(files)} files", describe(error)) from error


def _query(columns: KeyColumns) -> str:
    mapped = ", ".join(
        f"{one.field_id}: {{name: '{one.alias}', type: '{one.duckdb}', default_value: NULL}}" for one in columns.all
    )
    same_key = " AND ".join(f"rows.{name} = changes.{name}" for name in columns.key_names)
    sequences = "".join(f", rows.{name}" for name in columns.sequence_names)
    # The names are aliases made of field ids, and the types are from a fixed list: nothing here is from a user.
    return (
        f"SELECT rows.{FILE}, rows.{POSITION}, changes.{CHANGE}{sequences} FROM ("  # noqa: S608 - see above
        f"SELECT *, file_index AS {FILE}, file_row_number AS {POSITION}"
        f" FROM read_parquet(?, schema = MAP {{{mapped}}}, hive_partitioning = false)) AS rows"
        f" JOIN changes ON {same_key}"
    )


@contextmanager
def _connection(limits: ScanLimits, *, stays: bool) -> Iterator[tuple[Any, type[Exception]]]:
    """A connection to the process's database, or to one for this block only; and DuckDB's class of errors."""
    database, error_class = _database(limits) if stays else _opened(limits)
    try:
        with database.cursor() as connection:
            yield connection, error_class
    finally:
        if not stays:
            database.close()


@lru_cache(maxsize=4)
def _database(limits: ScanLimits) -> tuple[Any, type[Exception]]:
    """The database that stays open until the process ends."""
    atexit.register(_database.cache_clear)  # DuckDB complains of what is left at the end
    return _opened(limits)


def _opened(limits: ScanLimits) -> tuple[Any, type[Exception]]:
    """A new database in memory, which spills into a folder of its own, and DuckDB's class of errors."""
    try:
        import duckdb  # an optional dependency, for changes of rows only
    except ModuleNotFoundError:
        raise WriteError.of("UPSERT_LIBRARY_MISSING") from None
    check_library("duckdb", duckdb.__version__)
    folder = str(Path(tempfile.gettempdir()) / f"lakesink-scan-{os.getuid()}")
    with on_local_disk(folder):
        spilled = private_folder(folder) / uuid.uuid4().hex  # DuckDB makes it if it needs it
    spills = {"memory_limit": f"{limits.memory_bytes}B", "temp_directory": str(spilled)}
    config: dict[str, Any] = {**_SETTINGS, **spills, "threads": limits.threads}
    return duckdb.connect(config=config), duckdb.Error
