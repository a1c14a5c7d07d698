"""The stages of a task's rows, from the rows as they came to those that its files get. Runs in executors.

A stage turns batches into batches, and may put rows aside or leave them. What it found is added to the task's receipt.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.documents import PutAside, TaskDecoder
from lakesink.keys.change_columns import ChangeConversion, FittedChanges, conversion_of, first_place, key_names
from lakesink.keys.keys_file import KeysFileWriter
from lakesink.keys.newest import NewestChanges
from lakesink.parquet.partitions import check_partition_values
from lakesink.parquet.side_file import SideFile
from lakesink.rows.changed_rows import DELETE_MARK, ChangedRows, RowBatch
from lakesink.rows.columns import Alignment, alignment_of
from lakesink.rows.expectations import Unmet, is_mark
from lakesink.rows.letters import Fault
from lakesink.rows.plan import ChangesPlan, WritePlan
from lakesink.rows.scalars import TRUE, operation_scalar, same_operation
from lakesink.rows.texts import check_texts
from lakesink.rows.unfit import all_but, sort_rows
from lakesink.task.task_files import TaskFiles, TaskOutput
from lakesink_catalog.words import counted
from lakesink_protocol.errors import WriteError
from lakesink_protocol.measures import Tally
from lakesink_protocol.quality import together
from lakesink_protocol.receipt import LeftRows, Receipt
from lakesink_protocol.row_changes import DELETES, SUPERSEDED, Operation

IsRefused = Callable[[], bool]
"""True if what some stage found must fail the batch: its other rows are only counted."""


class Stage:
    """One step on the way of a task's rows."""

    __slots__ = ()

    @property
    def outputs(self) -> Sequence[TaskOutput]:
        """Files of its own."""
        return ()

    @property
    def refuses(self) -> bool:
        """True if what it found must fail the batch."""
        return False

    def through(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches for the next stage."""
        raise NotImplementedError

    def found(self, head: Receipt) -> Receipt:
        """The receipt with what it found."""
        return head


@dataclass(slots=True)
class Count(Stage):
    """Counts the rows as they came."""

    _rows: int = field(default=0, init=False)

    def through(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._rows += batch.num_rows
            yield batch

    def found(self, head: Receipt) -> Receipt:
        return replace(head, rows=self._rows)


@dataclass(slots=True)
class Expect(Stage):
    """Puts rows aside that do not meet an expectation. A delete is never judged: the table gets no row of it."""

    unmet: Unmet
    put_aside: PutAside | None

    @property
    def refuses(self) -> bool:
        return self.unmet.refuse

    def found(self, head: Receipt) -> Receipt:
        return replace(head, quality=together([head.quality, self.unmet.quality]))

    def _kept(self, rows: RowBatch, met: Sequence[pa.BooleanArray], never: pa.BooleanArray | None) -> RowBatch:
        faults = self.unmet.found(met, never)
        if not faults or self.put_aside is None:
            return rows
        self.put_aside(rows, faults)
        return rows.filter(all_but(rows.rows.num_rows, rows.made_with(faults)))


class ExpectMarked(Expect):
    """The same of rows that Spark has marked; takes off their marks. Nor is a row judged whose operation is unknown."""

    def through(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            met = [batch.column(one.mark) for one in self.unmet.expected]
            rows = batch.select([name for name in batch.schema.names if not is_mark(name)])
            came, never = rows, None
            if DELETE_MARK in rows.schema.names:
                came, never = rows.drop_columns([DELETE_MARK]), pc.fill_null(rows.column(DELETE_MARK), TRUE)
            judged = same_operation(Operation.UPSERT, rows.num_rows)  # a delete never is
            yield self._kept(RowBatch(rows, came, None, judged), met, never).rows


@dataclass(slots=True)
class ExpectDecoded(Expect):
    """The same of decoded documents, by their values in the table's columns."""

    conditions: Sequence[Callable[[pa.RecordBatch], pa.Array]]

    def through(self, batches: Iterator[RowBatch]) -> Iterator[RowBatch]:
        for batch in batches:
            met = [condition(batch.rows) for condition in self.conditions]
            operations, delete = batch.operations, operation_scalar(Operation.DELETE)
            yield self._kept(batch, met, None if operations is None else pc.equal(operations, delete))


@dataclass(slots=True)
class Decode(Stage):
    """Decodes documents; those that need other columns may wait in a file for the votes of all tasks.

    Attributes:
        deletes: Which rows delete; None if the decoder knows.
    """

    decoder: TaskDecoder
    left: SideFile
    deletes: Callable[[pa.RecordBatch], pa.BooleanArray] | None
    put_aside: PutAside | None
    _rows: int = field(default=0, init=False)

    @property
    def outputs(self) -> Sequence[TaskOutput]:
        return [self.left]

    @property
    def refuses(self) -> bool:
        return self.decoder.malformed > 0

    def through(self, batches: Iterator[pa.RecordBatch]) -> Iterator[RowBatch]:
        for rows in self.decoder.rows(batches):
            if self.deletes is None:
                yield rows
            else:
                yield with_operations(rows, self.deletes(rows.rows), self.put_aside, self._rows)
            self._rows += rows.came.num_rows

    def found(self, head: Receipt) -> Receipt:
        decoder, left = self.decoder, self.left
        has_left = left.rows and not head.refused
        return replace(
            head,
            quality=together([head.quality, decoder.quality]),
            malformed=decoder.malformed,
            misfits=tuple(decoder.misfits),
            changed=Tally.total([head.changed, decoder.changed]),
            left=LeftRows(left.location, left.rows, left.size_bytes) if has_left else None,
            news="" if head.refused else decoder.news,
        )


@dataclass(slots=True)
class Take(Stage):
    """Takes rows with the table's columns as they came; those that are changes have marks that say which are deletes.

    Attributes:
        put_aside: Of rows that cannot be written. Texts are checked by a later stage then.
    """

    are_changes: bool
    put_aside: PutAside | None
    _rows: int = field(default=0, init=False)

    def through(self, batches: Iterator[pa.RecordBatch]) -> Iterator[RowBatch]:
        for batch in batches:
            if self.put_aside is None:
                check_texts(batch, self._rows)
            yield self._marked(batch) if self.are_changes else RowBatch(batch, batch)
            self._rows += batch.num_rows

    def _marked(self, batch: pa.RecordBatch) -> RowBatch:
        """The changes of a batch whose marks say which rows are deletes; without marks, all are upserts."""
        unknown = pa.nulls(batch.num_rows, pa.int64())
        if DELETE_MARK not in batch.schema.names:
            return RowBatch(batch, batch, None, same_operation(Operation.UPSERT, batch.num_rows), unknown, unknown)
        marks, rows = batch.column(DELETE_MARK), batch.drop_columns([DELETE_MARK])
        return with_operations(RowBatch(rows, rows, None, None, unknown, unknown), marks, self.put_aside, self._rows)


def with_operations(rows: RowBatch, marks: pa.BooleanArray, put_aside: PutAside | None, first_row: int) -> RowBatch:
    """The changes of which `marks` says whether they delete. One without an answer is put aside, or fails the task."""
    operations = pc.if_else(marks, operation_scalar(Operation.DELETE), operation_scalar(Operation.UPSERT))
    found = replace(rows, operations=operations)
    if not marks.null_count:
        return found
    nulls = marks.is_null()
    if put_aside is None:
        where = first_place(found.changed, nulls, first_row)
        raise WriteError.of("OPERATION_UNKNOWN.condition", rows=counted(marks.null_count, "row"), where=where)
    fault = Fault("OPERATION_UNKNOWN", detail="the condition apply_as_deletes is NULL")
    put_aside(found, dict.fromkeys(pc.indices_nonzero(nulls).to_pylist(), fault))
    return found.filter(pc.invert(nulls))


@dataclass(slots=True)
class Fit(Stage):
    """Converts rows to the table's columns, unless they `keep` theirs; those that do not fit are put aside, or fail."""

    plan: WritePlan
    files: TaskFiles
    put_aside: PutAside | None
    is_refused: IsRefused
    keep: bool = False
    _rows: int = field(default=0, init=False)

    def through(self, batches: Iterator[RowBatch]) -> Iterator[Any]:
        conversion: Alignment | ChangeConversion | None = None
        for batch in batches:
            if conversion is None or not batch.rows.schema.equals(conversion.incoming):
                conversion = self._conversion(batch.rows.schema)
            if batch.rows.num_rows and not self.is_refused():
                yield from self._fitted(batch, conversion)
            self._rows += batch.rows.num_rows

    def _conversion(self, incoming: pa.Schema) -> Alignment | ChangeConversion:
        if self.keep:
            return Alignment(incoming, lambda rows: rows)
        if self.plan.changes is not None:
            return conversion_of(incoming, self.files.schema, self.plan, self.plan.changes)
        return alignment_of(incoming, self.files.schema, self.plan)

    def _fitted(self, batch: RowBatch, conversion: Alignment | ChangeConversion) -> Sequence[Any]:
        if self.put_aside is None:
            return [conversion.fitted(batch, self._rows)]

        def fit(some: RowBatch) -> Any:
            if not self.plan.decode:
                check_texts(some.rows, 0)
            fitted = conversion.fitted(some, 0)
            rows = fitted.rows if isinstance(fitted, FittedChanges) else fitted
            if rows is not None:
                check_partition_values(rows, self.files.sources)
            return fitted

        found = sort_rows(batch, fit, conversion.unfit(batch))
        if found.faults:
            self.put_aside(batch, found.faults)
        return found.fitting


@dataclass(slots=True)
class Key(Stage):
    """Keeps the newest change of each key. No row passes before the last has come.

    Old rows are located later, on the head of the commit, so a task never reads the table.

    Attributes:
        log: Gets all changes as the table's columns, superseded ones too; None without a changelog.
    """

    plan: WritePlan
    changes: ChangesPlan
    files: TaskFiles
    log: Callable[[ChangedRows], None] | None
    is_refused: IsRefused
    _keys: KeysFileWriter = field(init=False)
    _newest: NewestChanges = field(init=False)
    _deletes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._keys = KeysFileWriter(self.plan, self.changes, self.files.task)
        names = key_names(self.files.schema, self.changes)
        self._newest = NewestChanges(replace(names, shows_values=self.plan.show_values))

    @property
    def outputs(self) -> Sequence[TaskOutput]:
        return [self._keys]

    def through(self, batches: Iterator[FittedChanges]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if self.log is not None:
                for changes in batch.logged:
                    self.log(changes)
            if batch.stored is not None:
                self._newest.store(batch.stored)
            if batch.deletes is not None:
                self._newest.delete(batch.deletes)
        if self.is_refused():
            return
        stored, deletes = self._newest.taken()
        stored.reverse()
        while stored:  # the list keeps none of those that were written
            changes = stored.pop()
            self._keys.add(changes)
            yield changes.rows
        for changes in deletes:
            self._keys.add(changes)
            self._deletes += changes.rows.num_rows

    def found(self, head: Receipt) -> Receipt:
        if head.refused:
            return head
        found = Tally({SUPERSEDED: self._newest.left_out, DELETES: self._deletes})
        return replace(head, keys=self._keys.written, changed=Tally.total([head.changed, found]))
