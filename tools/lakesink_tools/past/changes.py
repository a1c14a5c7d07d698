"""Rows added to a table between two of its snapshots, counted by DuckDB.

If files were only added, their rows are the difference. If files were rewritten or rows deleted, the rows are compared
as a multiset. Files that both snapshots have with the same deletes are not read.
"""

import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

from lakesink_tools.past.as_of import deletes_named
from lakesink_tools.past.kept_nulls import kept_nulls

_SAMPLE = "SELECT * FROM (SELECT * FROM newer EXCEPT ALL SELECT * FROM older) LIMIT {}"
_COUNT = "SELECT count(*) FROM (SELECT * FROM {} EXCEPT ALL SELECT * FROM {})"


@dataclass(frozen=True, slots=True)
class Changes:
    """The difference between two snapshots."""

    # Rows and files count once for each additional occurrence; a data file with other delete files is another file.
    rows_added: int
    rows_removed: int
    files_added: int
    files_removed: int
    compared: bool  # True if rows were compared, because the newer snapshot lost files or rows of the older one
    sample: pa.Table  # some of the added rows


def changes(table: Table, older: int | None, newer: int, limit: int) -> Changes:
    """Compare two snapshots, `older` None for the empty table; rows have the schema of the newer one."""
    with kept_nulls():
        return _changes(table, older, newer, limit)


def _changes(table: Table, older: int | None, newer: int, limit: int) -> Changes:
    before = [] if older is None else _tasks(table, older)
    after = _tasks(table, newer)
    added, removed = _only_in(after, before), _only_in(before, after)
    rows = _Rows(table, table.scan(snapshot_id=newer).projection())
    if removed:
        return _compared(rows, added, removed, limit)
    return Changes(
        rows_added=rows.count(added),
        rows_removed=0,
        files_added=len(added),
        files_removed=0,
        compared=False,
        sample=rows.some(added, limit),
    )


def _compared(rows: "_Rows", added: Sequence[FileScanTask], removed: Sequence[FileScanTask], limit: int) -> Changes:
    with tempfile.TemporaryDirectory(prefix="lakesink-diff-") as spill, duckdb.connect() as connection:
        connection.execute("SET temp_directory = $folder", {"folder": spill})
        for name, tasks in (("newer", added), ("older", removed)):
            connection.register("files", rows.reader(tasks))
            connection.table("files").create(name)
            connection.unregister("files")
        return Changes(
            rows_added=_single(connection, _COUNT.format("newer", "older")),
            rows_removed=_single(connection, _COUNT.format("older", "newer")),
            files_added=len(added),
            files_removed=len(removed),
            compared=True,
            sample=connection.sql(_SAMPLE.format(limit)).to_arrow_table(),
        )


@dataclass(frozen=True, slots=True)
class _Rows:
    """Reads files as the table's readers do: resolves columns by field id and applies deletes."""

    table: Table
    schema: Schema

    def reader(self, tasks: Sequence[FileScanTask], schema: Schema | None = None) -> pa.RecordBatchReader:
        schema = schema or self.schema
        arrow = schema_to_pyarrow(schema, include_field_ids=False)
        batches = (
            # One file at a time: PyIceberg's scan of many files would hold every file that it read ahead.
            batch.cast(arrow)
            for task in tasks
            for batch in self._scan(schema).to_record_batches([task])
        )
        return pa.RecordBatchReader.from_batches(arrow, batches)

    def count(self, tasks: Sequence[FileScanTask]) -> int:
        narrow = Schema(self.schema.fields[0])
        with duckdb.connect() as connection:
            connection.register("files", self.reader(tasks, narrow))
            return _single(connection, "SELECT count(*) FROM files")

    def some(self, tasks: Iterable[FileScanTask], limit: int) -> pa.Table:
        found = self.reader([], self.schema).read_all()
        for task in tasks:
            if found.num_rows >= limit:
                break
            scan = self._scan(self.schema, limit - found.num_rows)
            found = pa.concat_tables([found, scan.to_table([task]).cast(found.schema)])
        return found

    def _scan(self, schema: Schema, limit: int | None = None) -> ArrowScan:
        return ArrowScan(self.table.metadata, self.table.io, schema, AlwaysTrue(), limit=limit)


def _tasks(table: Table, snapshot_id: int) -> list[FileScanTask]:
    with deletes_named(snapshot_id):
        return list(table.scan(snapshot_id=snapshot_id).plan_files())


def _only_in(tasks: Iterable[FileScanTask], others: Iterable[FileScanTask]) -> list[FileScanTask]:
    """A file with other delete files is another file; a file that is referenced twice counts twice."""
    left = Counter(map(_identity, others))
    found = []
    for task in tasks:
        if left[_identity(task)] > 0:
            left[_identity(task)] -= 1
        else:
            found.append(task)
    return found


def _identity(task: FileScanTask) -> tuple[str, frozenset[str]]:
    return task.file.file_path, frozenset(file.file_path for file in task.delete_files)


def _single(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    [[found]] = connection.sql(query).fetchall()
    return int(found)
