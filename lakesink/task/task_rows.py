"""The rows of one task on their way to the files: counted, decoded, and aligned with the table. Runs in executors.

A row that cannot be written is put aside, if the query wants that, or fails the task or the batch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lakesink.decode.documents import Decoder
from lakesink.parquet.left_rows import left_in, left_rows_file
from lakesink.parquet.partitions import PartitionSource, check_partition_values
from lakesink.parquet.side_file import SideFile
from lakesink.rows.columns import Alignment, align
from lakesink.rows.expectations import Marks
from lakesink.rows.letters import Fault, LetterRows
from lakesink.rows.plan import OnMalformed, WritePlan
from lakesink.rows.schema import Struct
from lakesink.rows.side_rows import SidePlan
from lakesink.rows.texts import check_texts
from lakesink.rows.unfit import all_but, sort_rows
from lakesink.task.task_files import TaskFiles
from lakesink_protocol.quality import Quality, together
from lakesink_protocol.receipt import Receipt


def alignment_of(incoming: pa.Schema, schema: Struct, plan: WritePlan) -> Alignment:
    """The conversion of rows of one schema to the table's columns."""
    return align(incoming, schema, case_sensitive=plan.case_sensitive, ignore_unknown=plan.ignore_unknown)


@dataclass(slots=True)
class TaskLetters:
    """The dead letters of one task."""

    plan: SidePlan
    rows: LetterRows
    files: TaskFiles
    _alignment: Alignment | None = None

    @classmethod
    def of(cls, plan: SidePlan, task: int, *, documents: bool) -> "TaskLetters":
        """Of a task whose rows have documents, or the table's columns."""
        return cls(plan, LetterRows(plan, documents), TaskFiles(plan.plan, task))

    def put_aside(self, rows: pa.RecordBatch, faults: Mapping[int, Fault]) -> None:
        """Write the rows at these positions as dead letters."""
        if not faults:
            return
        positions = sorted(faults)
        taken = rows.take(pa.array(positions, pa.int64()))
        letters = self.rows.of(taken, [faults[position] for position in positions])
        if self._alignment is None:
            self._alignment = alignment_of(letters.schema, self.files.schema, self.plan.plan)
        self.files.add(self._alignment.apply(letters))

    @property
    def head(self) -> Receipt:
        """Their receipt without files."""
        plan, rows = self.plan.plan, self.rows
        return Receipt(
            self.files.task, rows.count, (), plan.schema_id, premises=plan.premises, payload_digest=rows.digest
        )


@dataclass(slots=True)
class TaskRows:
    """A task's rows.

    Attributes:
        count: Rows that arrived.
        letters: Where rows are put aside; None if the query puts none aside.
        left: Where documents wait for the votes of all tasks.
    """

    plan: WritePlan
    schema: Struct
    task: int
    sources: tuple[PartitionSource, ...]
    marks: Marks
    letters: TaskLetters | None = None
    count: int = field(default=0, init=False)
    decoder: Decoder | None = field(default=None, init=False)
    left: SideFile = field(init=False)

    def __post_init__(self) -> None:
        self.left = left_rows_file(self.plan, self.task)

    @property
    def refuse(self) -> bool:
        """True if what was found in them must fail the batch."""
        return self.marks.refuse or (self.decoder is not None and self.decoder.malformed > 0)

    @property
    def aside(self) -> int:
        """Rows that were put aside."""
        return 0 if self.letters is None else self.letters.rows.count

    @property
    def head(self) -> Receipt:
        """Their receipt without files."""
        decoder, plan = self.decoder, self.plan
        quality = together([self.marks.quality, Quality(dead_letters=self.aside)])
        return Receipt(
            self.task,
            self.count,
            (),
            plan.schema_id,
            quality if decoder is None else together([quality, decoder.quality]),
            malformed=0 if decoder is None else decoder.malformed,
            misfits=() if decoder is None else tuple(decoder.misfits),
            refused=self.refuse,
            premises=plan.premises,
            left=None if self.refuse else left_in(self.left),
            news="" if decoder is None or self.refuse else decoder.news,
        )

    def aligned(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Those that can be written, as the table's columns."""
        alignment: Alignment | None = None
        for batch in self._decoded(batches):
            if alignment is None or not batch.schema.equals(alignment.incoming):
                alignment = alignment_of(batch.schema, self.schema, self.plan)
            if batch.num_rows and not self.marks.refuse:  # a refused batch is only counted
                yield from self._fitting(batch, alignment)

    def _fitting(self, rows: pa.RecordBatch, alignment: Alignment) -> Iterator[pa.RecordBatch]:
        if self.letters is None or self.plan.decode or self.plan.on_malformed is not OnMalformed.QUARANTINE:
            yield alignment.apply(rows)  # the decoder has put malformed documents aside
            return

        def fit(some: pa.RecordBatch) -> pa.RecordBatch:
            check_texts(some, 0)
            converted = alignment.apply(some)
            check_partition_values(converted, self.sources)
            return converted

        found = sort_rows(rows, fit, alignment.required)
        self.letters.put_aside(rows, found.faults)
        yield from found.fitting

    def _decoded(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.plan.decode:
            aside = None if self.letters is None else self.letters.put_aside
            self.decoder = Decoder(self.plan, self.schema, self.task, aside, self.left.add)
            yield from self.decoder.decoded(self._counted(batches))  # it checks its own texts
            return
        for batch in self._counted(batches):
            if self.plan.on_malformed is not OnMalformed.QUARANTINE:
                check_texts(batch, self.count - batch.num_rows)
            yield batch

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.count += batch.num_rows
            unmet = self.marks.unmet_of(batch)
            rows = self.marks.taken_off(batch)
            if self.letters is not None and unmet:
                faults = {
                    at: Fault("EXPECTATION_UNMET", first, ", ".join(more) and f"also {', '.join(more)}")
                    for at, (first, *more) in unmet.items()
                }
                self.letters.put_aside(rows, faults)
                rows = rows.filter(all_but(rows.num_rows, unmet))
            yield rows
