"""The changes of one task on their way to the files: counted, decoded, and converted. Runs in executors."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.debezium.decoder import DebeziumDecoder
from lakesink.decode.documents import Decoder
from lakesink.decode.states import StateDecoder
from lakesink.keys.change_columns import ChangeConversion, conversion_of, first_place, own_schema
from lakesink.keys.changed_rows import DELETE_MARK, ChangeDecoder, ChangedRows, same_operation
from lakesink.keys.newest_of_task import NewestChanges
from lakesink.rows.expectations import Marks
from lakesink.rows.plan import DEBEZIUM_AVRO, DEBEZIUM_JSON, ChangesPlan, WritePlan
from lakesink.rows.scalars import operation_scalar
from lakesink.rows.schema import Struct
from lakesink.rows.texts import check_texts
from lakesink_catalog.words import counted
from lakesink_protocol.errors import WriteError
from lakesink_protocol.quality import together
from lakesink_protocol.receipt import Receipt
from lakesink_protocol.row_changes import Operation


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
            splits=decoder.splits,
            tombstones=decoder.tombstones,
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
    return StateDecoder(Decoder(plan, schema, task)) if plan.decode else None


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
        raise WriteError(
            "OPERATION_UNKNOWN",
            f"The condition apply_as_deletes is NULL for at least {rows}; the first is {where}.",
            action="Make the condition true or false for every row, for example"
            " apply_as_deletes=\"coalesce(op = 'd', false)\", or filter these rows in the query.",
        )
    return changed
