"""Writes one task's changes by key: data files, a keys file, and a receipt. Runs in executors, before the pre-commit.

Old rows are located later, on the head of the commit, so a task never reads the table. Imports PyArrow and
`pyiceberg_core`, never PyIceberg or PySpark, and keeps no state between calls.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from lakesink.decode.documents import check_documents
from lakesink.sinks.iceberg.change_rows import ChangeRows
from lakesink.sinks.iceberg.task_files import TaskFiles
from lakesink.writer.change_columns import conversion_of, key_names, own_schema
from lakesink.writer.changed_rows import DELETE_MARK, ChangedRows
from lakesink.writer.expectations import Expected, Marks
from lakesink.writer.keys_file import KeysFileWriter, names_of
from lakesink.writer.libraries import check_library
from lakesink.writer.newest import NewestChanges
from lakesink.writer.plan import ChangesPlan, WritePlan
from lakesink.writer.refusals import rows_differ
from lakesink.writer.schema import parse_schema
from lakesink_protocol.receipt import encode


@dataclass(frozen=True, slots=True)
class ChangeTaskWriter:
    """Writes one task's changes under a plan with `changes`; see `lakesink_protocol.two_phase.TaskWriter`."""

    plan: WritePlan
    expected: tuple[Expected, ...] = ()

    @property
    def clustered_by(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """The columns of the key: one task should get all changes of a key. Documents have no columns yet."""
        if self.plan.decode:
            return ()
        names = names_of(parse_schema(self.plan.schema_json), self._changes.keys)
        return tuple(((name,), "identity") for name in names)

    @property
    def _changes(self) -> ChangesPlan:
        assert self.plan.changes is not None
        return self.plan.changes

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Write the newest change of each key and return the task's encoded receipt.

        Every file in the receipt is closed. A receipt refuses the batch as in `ParquetTaskWriter.write`.
        """
        files, keys = TaskFiles(self.plan, task), KeysFileWriter(self.plan, self._changes, task)
        rows = ChangeRows(self.plan, self._changes, files.schema, task, Marks(self.expected))
        newest = NewestChanges(key_names(files.schema, self._changes))
        try:
            rows.collect(batches, newest)
            if rows.refuse:
                return encode(rows.head)
            deletes = _write(newest, files, keys)
            files.close()
            keys.close()
        except BaseException:  # any end of the task must remove its open files; it is raised again
            files.abandon()
            keys.abandon()
            raise
        head = replace(rows.head, keys=keys.written, superseded=newest.superseded, deletes=deletes)
        if head.changes != files.record_count + deletes + newest.superseded:
            raise rows_differ(head.changes, files.record_count + deletes + newest.superseded)
        return files.receipt(head)


def check_change_columns(incoming: pa.Schema, plan: WritePlan) -> None:
    """Check before a job that changes whose rows have this schema can be written; tasks check the values."""
    check_library("pyarrow", pa.__version__)
    assert plan.changes is not None
    schema = parse_schema(plan.schema_json)
    if plan.decode:
        check_documents(incoming, own_schema(schema, plan.changes), plan)
    else:
        rows = pa.schema([one for one in incoming if one.name != DELETE_MARK])
        conversion_of(rows, schema, plan, plan.changes)


def _write(newest: NewestChanges, files: TaskFiles, keys: KeysFileWriter) -> int:
    """Write the newest changes, and return how many of them are deletes."""
    stored, deletes = newest.taken()
    for changes in _released(stored):
        keys.add(changes)
        files.add(changes.rows)
    for changes in deletes:
        keys.add(changes)
    return sum(changes.rows.num_rows for changes in deletes)


def _released(held: list[ChangedRows]) -> Iterator[ChangedRows]:
    """Each of the changes; the list keeps none of those that were returned."""
    held.reverse()
    while held:
        yield held.pop()
