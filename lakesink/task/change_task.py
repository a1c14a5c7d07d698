"""Writes one task's changes by key: data files, a keys file, and a receipt. Runs in executors, before the pre-commit.

Old rows are located later, on the head of the commit, so a task never reads the table. Imports PyArrow and
`pyiceberg_core`, never PyIceberg or PySpark, and keeps no state between calls.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.debezium.decoder import DebeziumDecoder
from lakesink.decode.documents import StateDecoder, check_documents
from lakesink.keys.change_columns import ChangeConversion, conversion_of, first_place, key_names, own_schema
from lakesink.keys.keys_file import KeysFileWriter, names_of
from lakesink.keys.newest import NewestChanges
from lakesink.rows.changed_rows import DELETE_MARK, ChangeDecoder, ChangedRows, same_operation
from lakesink.rows.columns import Alignment
from lakesink.rows.expectations import Expected, Marks
from lakesink.rows.libraries import check_library
from lakesink.rows.plan import DEBEZIUM_AVRO, DEBEZIUM_JSON, ChangesPlan, WritePlan
from lakesink.rows.scalars import operation_scalar
from lakesink.rows.schema import Struct, parse_schema
from lakesink.rows.side_rows import SidePlan
from lakesink.rows.task_errors import rows_differ
from lakesink.rows.texts import check_texts
from lakesink.task.changelog import ChangelogRows
from lakesink.task.task_files import TaskFiles, whole_or_abandoned
from lakesink.task.task_rows import alignment_of
from lakesink_catalog.words import counted
from lakesink_protocol.errors import WriteError
from lakesink_protocol.measures import Tally
from lakesink_protocol.quality import together
from lakesink_protocol.receipt import Receipt, encode
from lakesink_protocol.row_changes import DELETES, SUPERSEDED, Operation


@dataclass(slots=True)
class ChangeRows:
    """The changes of one task.

    Attributes:
        log: Gets all changes as the table's columns, superseded ones too; None without a changelog.
        count: Rows that arrived.
    """

    plan: WritePlan
    changes: ChangesPlan
    schema: Struct
    task: int
    marks: Marks
    log: Callable[[ChangedRows], None] | None = None
    count: int = field(default=0, init=False)
    _changed: int = field(default=0, init=False)
    _conversion: ChangeConversion | None = field(default=None, init=False)
    _decoder: ChangeDecoder | None = field(init=False)

    def __post_init__(self) -> None:
        self._decoder = decoder_for(self.plan, own_schema(self.schema, self.changes), self.task)

    @property
    def refuse(self) -> bool:
        """True if what was found in the rows must fail the batch."""
        return self.marks.refuse or (self._decoder is not None and self._decoder.malformed > 0)

    @property
    def head(self) -> Receipt:
        """Their receipt without files and without counts of what was written."""
        plan, decoder, quality = self.plan, self._decoder, self.marks.quality
        head = Receipt(self.task, self.count, (), plan.schema_id, quality, refused=self.refuse, premises=plan.premises)
        if decoder is None:
            return head
        return replace(
            head,
            quality=together([quality, decoder.quality]),
            malformed=decoder.malformed,
            misfits=tuple(decoder.misfits),
            changed=decoder.changed,
        )

    def collect(self, batches: Iterator[pa.RecordBatch], newest: NewestChanges) -> None:
        """Read all batches, and add their changes as the table's columns."""
        for changed in self._changes(self._counted(batches)):
            if self._conversion is None or not changed.rows.schema.equals(self._conversion.incoming):
                self._conversion = conversion_of(changed.rows.schema, self.schema, self.plan, self.changes)
            if changed.rows.num_rows and not self.refuse:  # a refused batch is only counted
                self._add(changed, self._conversion, newest)
            self._changed += changed.rows.num_rows

    def _add(self, changed: ChangedRows, conversion: ChangeConversion, newest: NewestChanges) -> None:
        conversion.check(changed, self._changed)
        stored, deletes = conversion.stored(changed), conversion.deletes(changed)
        if self.log is not None:
            deque(map(self.log, conversion.log(changed, stored)), maxlen=0)
        if stored is not None:
            newest.store(stored)
        if deletes is not None:
            newest.delete(deletes)

    def _changes(self, batches: Iterator[pa.RecordBatch]) -> Iterator[ChangedRows]:
        if self._decoder is not None:
            yield from self._decoder.changes(batches)
            return
        for batch in batches:
            check_texts(batch, self._changed)
            yield _marked(batch, self._changed)

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.count += batch.num_rows
            yield self.marks.taken_off(batch)


def decoder_for(plan: WritePlan, schema: Struct, task: int) -> ChangeDecoder | None:
    """The decoder of one task's documents; None for rows with the table's columns."""
    if plan.decode in (DEBEZIUM_JSON, DEBEZIUM_AVRO):
        return DebeziumDecoder(plan, schema, task)
    return StateDecoder(plan, schema, task) if plan.decode else None


def _marked(batch: pa.RecordBatch, first_row: int) -> ChangedRows:
    """The changes of a batch whose marks say which rows are deletes; without marks, all are upserts."""
    unknown = pa.nulls(batch.num_rows, pa.int64())
    if DELETE_MARK not in batch.schema.names:
        return ChangedRows(batch, same_operation(Operation.UPSERT, batch.num_rows), unknown, unknown)
    marks = batch.column(DELETE_MARK)
    operations = pc.if_else(marks, operation_scalar(Operation.DELETE), operation_scalar(Operation.UPSERT))
    changed = ChangedRows(batch.drop_columns([DELETE_MARK]), operations, unknown, unknown)
    if marks.null_count:
        where = first_place(changed, marks.is_null(), first_row)
        rows = counted(marks.null_count, "row")
        raise WriteError.of("OPERATION_UNKNOWN.condition", rows=rows, where=where)
    return changed


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
        return self.write_both(task, batches, None)[0]

    def write_both(self, task: int, batches: Iterator[pa.RecordBatch], side: SidePlan | None) -> tuple[bytes, bytes]:
        """Write changes, and all of them into a changelog; see `WritesBeside`."""
        plan, changes = self.plan, self.changes
        files, keys = TaskFiles(plan, task), KeysFileWriter(plan, changes, task)
        log = None if side is None else TaskLog(side.plan, ChangelogRows(side.sink.name, side.plan.batch_id), task)
        rows = ChangeRows(plan, changes, files.schema, task, Marks(self.expected), None if log is None else log.add)
        newest = NewestChanges(replace(key_names(files.schema, changes), shows_values=plan.show_values))
        deletes = 0
        with whole_or_abandoned([files, keys, *([] if log is None else [log.files])], lambda: rows.refuse):
            rows.collect(batches, newest)
            if not rows.refuse:
                deletes = _write(newest, files, keys)
        if rows.refuse:
            return encode(rows.head), b"" if log is None else log.receipt(refused=True)
        changed = Tally({**rows.head.changed, SUPERSEDED: newest.left_out, DELETES: deletes})
        head = replace(rows.head, keys=keys.written, changed=changed)
        if head.changes != (found := files.record_count + deletes + newest.left_out):
            raise rows_differ(head.changes, found)
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


def _write(newest: NewestChanges, files: TaskFiles, keys: KeysFileWriter) -> int:
    """Write the newest changes, and return how many of them are deletes."""
    stored, deletes = newest.taken()
    stored.reverse()
    while stored:  # the list keeps none of those that were written
        changes = stored.pop()
        keys.add(changes)
        files.add(changes.rows)
    for changes in deletes:
        keys.add(changes)
    return sum(changes.rows.num_rows for changes in deletes)
