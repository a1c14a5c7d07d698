"""One task: its rows go through stages into closed Parquet files, and each output has a receipt. Runs in executors.

Imports PyArrow and `pyiceberg_core`, never PyIceberg or PySpark, and keeps no state between calls.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from lakesink.decode.debezium.decoder import DebeziumDecoder
from lakesink.decode.documents import Decoder, check_documents
from lakesink.keys.change_columns import ChangeIdentity, conversion_of, key_names, own_schema
from lakesink.parquet.partitions import source_paths
from lakesink.parquet.side_file import LEFT_ROWS, SideFile
from lakesink.rows.changed_rows import DELETE_MARK
from lakesink.rows.columns import NameRule, alignment_of
from lakesink.rows.conditions import Condition, evaluator
from lakesink.rows.expectations import Expected, Unmet
from lakesink.rows.letters import LetterRows
from lakesink.rows.libraries import check_library
from lakesink.rows.plan import DEBEZIUM, OnMalformed, PartitionField, SortField, WritePlan
from lakesink.rows.schema import Field, Primitive, Struct, parse_schema
from lakesink.rows.side_rows import SidePlan
from lakesink.task.changelog import ChangelogRows
from lakesink.task.stages import Count, Decode, ExpectDecoded, ExpectMarked, Fit, IsRefused, Key, Stage, Take
from lakesink.task.task_files import HandedRows, SideOutput, TaskFiles, whole_or_abandoned
from lakesink_protocol.errors import WriteError
from lakesink_protocol.measures import DEAD_LETTERS, Tally
from lakesink_protocol.quality import Quality
from lakesink_protocol.receipt import Receipt
from lakesink_protocol.row_changes import DELETES, SPLITS, SUPERSEDED
from lakesink_protocol.two_phase import ClusteredBy, ClusteredWriter, TaskWriter
from lakesink_protocol.votes import apart, receipts_of, together


@dataclass(frozen=True, slots=True)
class ParquetTaskWriter:
    """Writes one task's rows, and others for side tables; see `lakesink_protocol.two_phase.RoutingWriter`.

    Attributes:
        behind: The writer of another sink, which gets the rows in place of files; see `HandedRows`.
    """

    plan: WritePlan
    expected: tuple[Expected, ...] = ()
    sides: tuple[SidePlan, ...] = ()
    behind: TaskWriter | None = None

    @property
    def clustered_by(self) -> ClusteredBy:
        """The columns by which rows should come together in one task: of the key, or of partition and order.

        None for documents, which have no columns yet. Buckets are left out: Spark has no expression for them, and a
        shuffle by nothing would only make more files.
        """
        plan, schema = self.plan, parse_schema(self.plan.schema_json)
        if plan.decode:
            return ()
        if isinstance(self.behind, ClusteredWriter):
            return self.behind.clustered_by
        if plan.changes is not None:
            return tuple(((name,), "identity") for name in key_names(schema, plan.changes).keys)
        ordered = plan.sort_order if self.by_range else ()
        fields: list[PartitionField | SortField] = [*plan.partition_fields, *ordered]
        found = source_paths(schema, fields) if plan.distribution_mode != "none" else ()
        return tuple((path, transform) for path, transform in found if not transform.startswith("bucket"))

    @property
    def by_range(self) -> bool:
        """True if the table asks for ranges of its order, so that the bounds of a batch's files overlap little."""
        by_range = self.plan.distribution_mode == "range" and bool(self.plan.sort_order)
        return by_range and self.plan.changes is None and self.behind is None

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Write one task's rows and return its encoded receipt; with side tables all receipts `together`.

        Every file in the receipt is closed, and all rows are in one output. A receipt refuses the batch if a malformed
        document, or a row that does not meet an expectation, must fail it. After a failure, files that were never
        closed are removed; closed files stay unreferenced.
        """
        receipts = self._written(task, batches)
        return together(receipts) if self.sides else receipts[0]

    def receipts(self, name: str, written: bytes) -> Mapping[str, bytes]:
        """See `RoutingWriter`."""
        found = apart(written, 1 + len(self.sides)) if self.sides else [written]
        named = dict(zip([name, *(side.participant for side in self.sides)], found, strict=True))
        if self.behind is None:
            return named
        head, own = apart(named[name], 2)
        of_behind = receipts_of(name, self.behind, own) if own else {name: own}  # none of a task that refuses the batch
        return {**of_behind, **named, name: together([head, of_behind[name]])}

    def _written(self, task: int, batches: Iterator[pa.RecordBatch]) -> list[bytes]:
        """The encoded receipts of the table and of the side tables."""
        plan, files = self.plan, TaskFiles(self.plan, task)
        sides = [self._side(side, files) for side in self.sides]
        letters, log = (next((side for side in sides if side.plan.logs is logs), None) for logs in (False, True))
        stages: list[Stage] = []

        def is_refused() -> bool:
            return any(stage.refuses for stage in stages)

        stages += self._stages(files, letters, log, is_refused)
        passed = files if self.behind is None else HandedRows(self.behind, task, is_refused)
        outputs = [files, *(side.files for side in sides), *(output for stage in stages for output in stage.outputs)]
        with whole_or_abandoned(outputs, is_refused):
            rows = batches
            for stage in stages:
                rows = stage.through(rows)
            passed.take(rows)
        aside = 0 if letters is None else letters.made.count
        quality = Quality(Tally({DEAD_LETTERS: aside}))
        head = Receipt(task, 0, (), plan.schema_id, quality, refused=is_refused(), premises=plan.premises)
        for stage in stages:
            head = stage.found(head)
        if letters is not None and letters.joined:
            head = replace(head, changed=Tally(head.changed | {SPLITS: head.changed[SPLITS] - letters.joined}))
        left = 0 if head.left is None else head.left.rows
        found = passed.record_count + aside + left + head.changed[DELETES] + head.changed[SUPERSEDED]
        if head.changes != found and not head.refused:
            raise WriteError.of("ROWS_DIFFER", received=head.changes, written=found)
        return [passed.receipt(head), *(side.receipt(refused=head.refused) for side in sides)]

    def _side(self, side: SidePlan, files: TaskFiles) -> SideOutput:
        of_side = TaskFiles(side.plan, files.task)
        if side.logs:
            return SideOutput(side, ChangelogRows(side.sink.name, side.plan.batch_id), of_side)
        names = None if self.plan.changes is None else key_names(files.schema, self.plan.changes)
        rule = NameRule(self.plan.case_sensitive)
        identity = None if names is None else ChangeIdentity(names.keys, names.sequence, rule)
        return SideOutput(side, LetterRows(side, self.plan.decode is not None), of_side, identity)

    def _stages(
        self, files: TaskFiles, letters: SideOutput | None, log: SideOutput | None, is_refused: IsRefused
    ) -> list[Stage]:
        """The stages in their order: count, expect and take or decode and expect, fit, and key."""
        plan, changes, aside = self.plan, self.plan.changes, None if letters is None else letters.put_aside
        of_malformed = aside if plan.on_malformed is OnMalformed.QUARANTINE else None
        stages: list[Stage] = [Count()]
        unmet = Unmet(self.expected)
        if plan.decode:
            decoder = DebeziumDecoder if plan.decode in DEBEZIUM else Decoder
            left = SideFile(plan, files.task, LEFT_ROWS)
            deletes = None if changes is None or changes.deletes is None else condition_on(plan, changes.deletes)
            decoding = decoder(plan, decoded_columns(plan), files.task, of_malformed, left.add)
            stages.append(Decode(decoding, left, deletes, of_malformed))
            stages.append(ExpectDecoded(unmet, aside, [condition_on(plan, one.condition) for one in self.expected]))
        else:
            stages += [ExpectMarked(unmet, aside), Take(changes is not None, of_malformed)]
        keep = self.behind is not None and not plan.decode
        stages.append(Fit(plan, files, of_malformed, is_refused, keep))
        if changes is not None:
            stages.append(Key(plan, changes, files, None if log is None else log.add, is_refused))
        return stages


def decoded_columns(plan: WritePlan) -> Struct:
    """The table's columns that documents fill, and those of the documents that are not stored, as STRING.

    Where a condition says which documents delete, a column may lack a value that rows must have: a delete has no row.
    """
    schema, changes = parse_schema(plan.schema_json), plan.changes
    if changes is None:
        return schema
    rule = NameRule(plan.case_sensitive)
    fields = own_schema(schema, changes).fields
    known = {rule.key(one.name) for one in fields}
    if changes.deletes is not None:
        key = {*changes.keys, *changes.sequence}
        fields = tuple(
            replace(one, required=False, is_exact=True) if one.required and one.field_id not in key else one
            for one in fields
        )
    others = [name for name in changes.except_columns if plan.decode and rule.key(name) not in known]
    of_text = Field(0, "", required=False, type=Primitive("string"), is_exact=True)
    return Struct((*fields, *(replace(of_text, name=name) for name in others)))


def condition_on(plan: WritePlan, condition: Condition | None) -> Callable[[pa.RecordBatch], pa.Array]:
    """Evaluates a condition on decoded documents; raises ValueError if it has no meaning on their columns."""
    assert condition is not None, "Spark marks no documents"
    return evaluator(condition, decoded_columns(plan), NameRule(plan.case_sensitive).key)


def check_columns(incoming: pa.Schema, plan: WritePlan) -> None:
    """Check before a job that rows of this schema can be written; tasks check the values."""
    check_library("pyarrow", pa.__version__)
    schema, changes = parse_schema(plan.schema_json), plan.changes
    if plan.decode:
        check_documents(incoming, decoded_columns(plan), plan)
    elif changes is None:
        alignment_of(incoming, schema, plan)
    else:
        rows = pa.schema([one for one in incoming if one.name != DELETE_MARK])
        conversion_of(rows, schema, plan, changes)
