"""Writes one task's changes by key: data files, a keys file, and a receipt. Runs in executors, before the pre-commit.

Old rows are located later, on the head of the commit, so a task never reads the table. Imports PyArrow and
`pyiceberg_core`, never PyIceberg or PySpark, and keeps no state between calls.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakesink.decode.documents import check_documents
from lakesink.keys.change_columns import conversion_of, key_names, own_schema
from lakesink.keys.changed_rows import DELETE_MARK, ChangedRows
from lakesink.keys.keys_file import KeysFileWriter, names_of
from lakesink.keys.newest_of_task import NewestChanges
from lakesink.rows.columns import Alignment
from lakesink.rows.expectations import Expected, Marks
from lakesink.rows.libraries import check_library
from lakesink.rows.plan import ChangesPlan, WritePlan
from lakesink.rows.schema import parse_schema
from lakesink.rows.side_rows import SidePlan
from lakesink.rows.task_errors import rows_differ
from lakesink.task.change_rows import ChangeRows
from lakesink.task.changelog import ChangelogRows
from lakesink.task.task_files import TaskFiles
from lakesink.task.task_rows import alignment_of
from lakesink.task.two_receipts import packed, unpacked
from lakesink_protocol.receipt import Receipt, encode


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
        names = names_of(parse_schema(self.plan.schema_json), self.changes.keys)
        return tuple(((name,), "identity") for name in names)

    @property
    def changes(self) -> ChangesPlan:
        """How the rows change others."""
        assert self.plan.changes is not None
        return self.plan.changes

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Write the newest change of each key and return the task's encoded receipt.

        Every file in the receipt is closed. A receipt refuses the batch as in `ParquetTaskWriter.write`.
        """
        return write_changes(self, None, task, batches)[0]


@dataclass(frozen=True, slots=True)
class LoggingTaskWriter:
    """Writes one task's changes, and all of them into a changelog. See `lakesink_protocol.two_phase.RoutingWriter`."""

    changes: ChangeTaskWriter
    log: SidePlan

    @property
    def clustered_by(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """As without a changelog."""
        return self.changes.clustered_by

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Write one task's changes and return its two encoded receipts as one text of bytes."""
        log = TaskLog(self.log.plan, ChangelogRows(self.log.sink.name, self.log.plan.batch_id), task)
        return packed(*write_changes(self.changes, log, task, batches))

    def receipts(self, written: bytes) -> Mapping[str, bytes]:
        """The two receipts."""
        return unpacked(written, self.log)


@dataclass(slots=True)
class TaskLog:
    """The changelog of one task."""

    plan: WritePlan
    rows: ChangelogRows
    task: int
    files: TaskFiles = field(init=False)
    _alignment: Alignment | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.files = TaskFiles(self.plan, self.task)

    def add(self, changed: ChangedRows) -> None:
        """Add changes as the table's columns."""
        rows = self.rows.of(changed)
        if self._alignment is None:
            self._alignment = alignment_of(rows.schema, self.files.schema, self.plan)
        self.files.add(self._alignment.apply(rows))

    def receipt(self, *, refused: bool) -> bytes:
        """The encoded receipt; a refused batch has nothing."""
        head = Receipt(self.task, 0, (), self.plan.schema_id, premises=self.plan.premises)
        if refused:
            return encode(head)
        return self.files.receipt(replace(head, rows=self.rows.count, payload_digest=self.rows.digest))


def write_changes(
    writer: ChangeTaskWriter, log: TaskLog | None, task: int, batches: Iterator[pa.RecordBatch]
) -> tuple[bytes, bytes]:
    """Write changes, and all of them into a changelog; returns both receipts, the second one empty without `log`."""
    plan, changes = writer.plan, writer.changes
    files, keys = TaskFiles(plan, task), KeysFileWriter(plan, changes, task)
    written: list[TaskFiles | KeysFileWriter] = [files, keys, *([] if log is None else [log.files])]
    rows = ChangeRows(plan, changes, files.schema, task, Marks(writer.expected), None if log is None else log.add)
    newest = NewestChanges(replace(key_names(files.schema, changes), shows_values=plan.show_values))
    try:
        rows.collect(batches, newest)
        if not rows.refuse:
            deletes = _write(newest, files, keys)
            for each in written:
                each.close()
    except BaseException:  # any end of the task must remove its open files; it is raised again
        _abandon(written)
        raise
    if rows.refuse:
        _abandon(written)
        return encode(rows.head), b"" if log is None else log.receipt(refused=True)
    head = replace(rows.head, keys=keys.written, superseded=newest.superseded, deletes=deletes)
    if head.changes != files.record_count + deletes + newest.superseded:
        raise rows_differ(head.changes, files.record_count + deletes + newest.superseded)
    return files.receipt(head), b"" if log is None else log.receipt(refused=False)


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


def _abandon(written: Sequence[TaskFiles | KeysFileWriter]) -> None:
    for files in written:
        files.abandon()


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
