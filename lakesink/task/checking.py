"""Row features in front of the task writer of any sink. Runs in executors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lakesink.decode.documents import PutAside
from lakesink.rows.changed_rows import RowBatch
from lakesink.rows.expectations import Expected, Unmet
from lakesink.rows.letters import LetterRows
from lakesink.rows.plan import OnMalformed, WritePlan
from lakesink.rows.side_rows import SidePlan
from lakesink.rows.task_errors import rows_differ
from lakesink.rows.texts import check_texts
from lakesink.rows.unfit import sort_rows
from lakesink.task.stages import Count, ExpectMarked, IsRefused, Stage
from lakesink.task.task import ParquetTaskWriter
from lakesink.task.task_files import SideOutput, TaskFiles, whole_or_abandoned
from lakesink_protocol.measures import DEAD_LETTERS, Tally
from lakesink_protocol.quality import Quality
from lakesink_protocol.receipt import Receipt, encode
from lakesink_protocol.two_phase import ClusteredBy, ClusteredWriter, TaskWriter, receipts_of
from lakesink_protocol.votes import apart, together


class _Refused(Exception):
    """A row must fail the batch."""


@dataclass(slots=True)
class Pass(Stage):
    """Counts the rows that the writer behind gets: none any more once a row must fail the batch."""

    is_refused: IsRefused
    rows: int = field(default=0, init=False)
    has_refused: bool = field(default=False, init=False)

    def through(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """See `Stage`. All rows are judged, for the message has their number."""
        for batch in batches:
            if not self.is_refused():
                self.rows += batch.num_rows
                yield batch
        if self.is_refused():
            self.has_refused = True
            raise _Refused


@dataclass(slots=True)
class Readable(Stage):
    """Puts rows aside with text that is not UTF-8, which no target takes."""

    put_aside: PutAside

    def through(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """See `Stage`."""
        for batch in batches:
            rows = RowBatch(batch, batch)
            found = sort_rows(rows, _checked, {})
            if found.faults:
                self.put_aside(rows, found.faults)
            yield from found.fitting


def _checked(rows: RowBatch) -> pa.RecordBatch:
    check_texts(rows.rows, 0)
    return rows.rows


@dataclass(frozen=True, slots=True)
class CheckingWriter:
    """Decodes and judges one task's rows before another writer gets them; see `RoutingWriter`.

    Attributes:
        behind: Gets the rows that pass.
        documents: How documents become columns; None if the rows have columns.
        letters: Where the rows go that are put aside; None if none are.
        on_malformed: What happens to rows with columns that no target takes; `documents` has it of documents.
    """

    behind: TaskWriter
    expected: tuple[Expected, ...] = ()
    documents: WritePlan | None = None
    letters: SidePlan | None = None
    on_malformed: OnMalformed = OnMalformed.FAIL

    @property
    def clustered_by(self) -> ClusteredBy:
        """See `ClusteredWriter`. Documents have no columns yet."""
        if self.documents is None and isinstance(self.behind, ClusteredWriter):
            return self.behind.clustered_by
        return ()

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Write one task's rows; returns what was found in them, and what the writer behind returned, `together`."""
        stages: list[Stage] = []

        def is_refused() -> bool:
            return any(stage.refuses for stage in stages)

        letters = None
        if self.letters is not None:
            rows_aside = LetterRows(self.letters, self.documents is not None)
            letters = SideOutput(self.letters, rows_aside, TaskFiles(self.letters.plan, task))
        stages += self._stages(task, letters, is_refused)
        passing = Pass(is_refused)
        written = b""
        outputs = [output for stage in stages for output in stage.outputs]
        with whole_or_abandoned([*outputs, *([] if letters is None else [letters.files])], is_refused):
            rows = batches
            for stage in (*stages, passing):
                rows = stage.through(rows)
            try:
                written = self.behind.write(task, rows)
            except Exception:
                if not passing.has_refused:
                    raise
        aside = 0 if letters is None else letters.count
        head = Receipt(task, 0, (), quality=Quality(Tally({DEAD_LETTERS: aside})), refused=is_refused())
        for stage in stages:
            head = stage.found(head)
        if head.refused:
            written = b""
        elif head.rows != passing.rows + aside:
            raise rows_differ(head.rows, passing.rows + aside)
        return together([encode(head), written, *([] if letters is None else [letters.receipt(refused=head.refused)])])

    def receipts(self, name: str, written: bytes) -> Mapping[str, bytes]:
        """See `RoutingWriter`."""
        head, own, *of_letters = apart(written, 2 if self.letters is None else 3)
        found: dict[str, bytes] = {name: own}  # empty if the task refuses the batch
        if own:
            found |= receipts_of(name, self.behind, own)
        found[name] = together([head, found[name]])
        return found if self.letters is None else {**found, self.letters.participant: of_letters[0]}

    def _stages(self, task: int, letters: SideOutput | None, is_refused: IsRefused) -> list[Stage]:
        if self.documents is None:
            put_aside = None if letters is None else letters.put_aside
            stages: list[Stage] = [Count(), ExpectMarked(Unmet(self.expected), put_aside)]
            if put_aside is not None and self.on_malformed is OnMalformed.QUARANTINE:
                stages.append(Readable(put_aside))
            return stages
        files = TaskFiles(self.documents, task)  # of no file: the rows go elsewhere
        return ParquetTaskWriter(self.documents, self.expected).stages(files, letters, None, is_refused)
