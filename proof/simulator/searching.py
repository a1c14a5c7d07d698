"""A search for keys in the place of DuckDB: the files of a simulated table are in memory, and have a few rows each.

DuckDB takes longer to start than all the rest of a batch. That it finds the same is tried with real files.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from lakesink.keys.data_file import DataFile
from lakesink.keys.locate_errors import file_unreadable, reading
from lakesink.keys.newest import CHANGE
from lakesink.keys.scan import found_schema
from lakesink.keys.work import Search

Found = tuple[int, int, int, tuple[object, ...]]
"""File, position, change, and the sequence of the row."""


@contextmanager
def searching_in_memory() -> Iterator[None]:
    """Inside, this process compares keys itself."""
    with_duckdb = Search.find
    Search.find = _find  # type: ignore[method-assign] # that is what it is for
    try:
        yield
    finally:
        Search.find = with_duckdb  # type: ignore[method-assign]


def _find(self: Search, files: Sequence[DataFile], changes: pa.Table) -> pa.Table:
    """See `Search.find`."""
    keys = zip(*(changes[name].to_pylist() for name in self.columns.key_names), strict=True)
    by_key: dict[tuple[object, ...], list[int]] = {}
    for key, change in zip(keys, changes[CHANGE].to_pylist(), strict=True):
        by_key.setdefault(key, []).append(change)
    found = [row for at, file in enumerate(files) for row in _rows_of(self, at, file, by_key)]
    parts: list[list[object]] = [[row[part] for row in found] for part in range(3)]
    parts += [[row[3][at] for row in found] for at in range(len(self.columns.sequences))]
    schema = found_schema(self.columns)
    return pa.table([pa.array(part, kind) for part, kind in zip(parts, schema.types, strict=True)], schema=schema)


def _rows_of(search: Search, at: int, file: DataFile, by_key: dict[tuple[object, ...], list[int]]) -> list[Found]:
    with reading(file.path, file_unreadable), search.source.open_input(file.path) as source:
        table = pq.ParquetFile(source).read(use_threads=False)
    keys, sequences = (
        [table[column.name].to_pylist() for column in columns]
        for columns in (search.columns.keys, search.columns.sequences)
    )
    rows = zip(*keys, strict=True)
    return [
        (at, position, change, tuple(column[position] for column in sequences))
        for position, key in enumerate(rows)
        for change in by_key.get(key, ())
    ]
