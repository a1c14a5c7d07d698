"""Rows added to a table between two of its snapshots.

If files were only added, their rows are the difference. If files were rewritten or rows deleted, the rows are compared
as a multiset, by DuckDB. Files that both snapshots have with the same deletes are not read.
"""

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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


@kept_nulls()
def changes(table: Table, older: int | None, newer: int, limit: int) -> Changes:
    """Compare two snapshots, `older` None for the empty table; rows have the schema of the newer one."""
    before = [] if older is None else files_of(table, older)
    after = files_of(table, newer)
    added, removed = _only_in(after, before), _only_in(before, after)
    schema = table.scan(snapshot_id=newer).projection()
    if removed:
        rows_added, rows_removed, sample = _compared(table, schema, added, removed, limit)
    else:
        narrow = Schema(schema.fields[0])
        rows_added, rows_removed = sum(batch.num_rows for batch in read_files(table, narrow, added)), 0
        sample = read_files(table, schema, added, limit).read_all()
    return Changes(rows_added, rows_removed, len(added), len(removed), bool(removed), sample)


def files_of(table: Table, snapshot_id: int) -> list[FileScanTask]:
    """The data files of a snapshot with their deletes. Raises a `CatalogError` if PyIceberg cannot apply these."""
    with deletes_named(snapshot_id):
        return list(table.scan(snapshot_id=snapshot_id).plan_files())


def read_files(
    table: Table, schema: Schema, tasks: Iterable[FileScanTask], limit: int | None = None
) -> pa.RecordBatchReader:
    """Read live rows as the table's readers do: resolves columns by field id and applies deletes."""
    arrow = schema_to_pyarrow(schema, include_field_ids=False)

    def batches() -> Iterator[pa.RecordBatch]:
        left = limit
        for task in tasks:  # one file at a time: PyIceberg's scan of many would hold every file that it read ahead
            if left == 0:
                return
            scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue(), limit=left)
            for batch in scan.to_record_batches([task]):
                left = None if left is None else left - batch.num_rows
                yield batch.cast(arrow)

    return pa.RecordBatchReader.from_batches(arrow, batches())


def _compared(
    table: Table, schema: Schema, added: Sequence[FileScanTask], removed: Sequence[FileScanTask], limit: int
) -> tuple[int, int, pa.Table]:
    """The number of rows that were added and removed, and some of the added ones."""
    with (
        tempfile.TemporaryDirectory(prefix="lakesink-diff-") as spill,
        duckdb.connect(config={"temp_directory": spill}) as connection,
    ):
        for name, tasks in (("newer", added), ("older", removed)):
            connection.register("files", read_files(table, schema, tasks))
            connection.table("files").create(name)
            connection.unregister("files")
        [[rows_added]] = connection.sql(_COUNT.format("newer", "older")).fetchall()
        [[rows_removed]] = connection.sql(_COUNT.format("older", "newer")).fetchall()
        return rows_added, rows_removed, connection.sql(_SAMPLE.format(limit)).to_arrow_table()


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
