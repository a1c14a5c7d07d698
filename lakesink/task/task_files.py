"""The data files that a task writes, of its table and of side tables, and their receipts. Runs in executors.

Rows are buffered for large row groups: Spark sends ten thousand at a time, Parquet needs far more. One memory limit
covers all partitions. At the limit, the largest ones are written, with at least half of the rows, so small ones grow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from lakesink.keys.change_columns import ChangeIdentity
from lakesink.parquet.files import DataFiles
from lakesink.parquet.order import SortKey, indices, sort_keys
from lakesink.parquet.partitions import Group, Grouping, PartitionSource, group
from lakesink.rows.changed_rows import RowBatch
from lakesink.rows.columns import Alignment, alignment_of
from lakesink.rows.letters import Fault, LetterRows
from lakesink.rows.plan import WritePlan
from lakesink.rows.schema import Struct, parse_schema
from lakesink.rows.side_rows import SidePlan
from lakesink.task.changelog import ChangelogRows
from lakesink_protocol.receipt import Receipt, ReceiptEncoder, encode
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import together


@dataclass(slots=True)
class TaskFiles:
    """Collects rows with the table's columns until there are enough for its files; ends with `close` or `abandon`."""

    plan: WritePlan
    task: int
    schema: Struct = field(init=False)
    _order: tuple[SortKey, ...] = field(init=False)
    _files: DataFiles = field(init=False)
    _receipt: ReceiptEncoder = field(default_factory=ReceiptEncoder, init=False)
    _batches: list[pa.RecordBatch] = field(default_factory=list, init=False)
    _bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.schema = parse_schema(self.plan.schema_json)
        self._order = sort_keys(self.schema, self.plan.sort_order)
        self._files = DataFiles.of(self.plan, self.task, self._receipt.add)

    @property
    def sources(self) -> tuple[PartitionSource, ...]:
        """The source columns of the partition fields."""
        return tuple(self._files.sources)

    @property
    def record_count(self) -> int:
        """Rows in closed files."""
        return self._receipt.record_count

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; writes rows at the memory limit."""
        size, plan = batch.nbytes, self.plan
        limit = (
            plan.buffer_bytes
            if self.sources or self._order
            else min(plan.buffer_bytes, plan.parquet.row_group_size_bytes)
        )
        if self._batches and self._bytes + size > limit:
            self._spill()
        self._batches.append(batch)
        self._bytes += size

    def take(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Add all rows."""
        for batch in batches:
            self.add(batch)

    def close(self) -> None:
        """Write all rows and close the files; partitions with an open file first, because the others could evict it."""
        if self._batches:
            grouping = self._take()
            groups = sorted(grouping.groups, key=lambda found: not self._files.is_open(found.partition))
            for part in _parts(groups, grouping.table.num_rows // 2):
                self._write(grouping, part)
                for found in part:
                    self._files.finish(found.partition)
        self._files.close()

    def abandon(self) -> None:
        """Remove the files that were never closed; closed files stay unreferenced. Never raises."""
        self._files.abandon()

    def receipt(self, head: Receipt) -> bytes:
        """The encoded receipt with all closed files, but of a refused batch; `head` lists none."""
        return encode(head) if head.refused else self._receipt.finish(head)

    def _spill(self) -> None:
        """Write the largest partitions. The other rows are copied, because slices would keep all memory."""
        grouping = self._take()
        groups = sorted(grouping.groups, key=lambda found: found.count, reverse=True)
        largest = next(_parts(groups, grouping.table.num_rows // 2))
        self._write(grouping, largest)
        rest = groups[len(largest) :]
        if rest:
            self._batches = grouping.take(rest).to_batches()
            self._bytes = sum(batch.nbytes for batch in self._batches)

    def _write(self, grouping: Grouping, groups: Sequence[Group]) -> None:
        for partition, rows in grouping.split(groups):
            order = indices(rows, self._order)
            self._files.write(partition, rows if order is None else rows.take(order))
            if self._order:  # the next rows of the partition could be anywhere in it
                self._files.finish(partition)

    def _take(self) -> Grouping:
        table = pa.Table.from_batches(self._batches)
        self._batches, self._bytes = [], 0
        return group(table, self.sources)


def _parts(groups: Sequence[Group], rows: int) -> Iterator[list[Group]]:
    """The groups in their order, in parts of at least this many rows, which limits the size of one copy."""
    part: list[Group] = []
    held = 0
    for found in groups:
        part.append(found)
        held += found.count
        if held >= rows:
            yield part
            part, held = [], 0
    if part:
        yield part


@dataclass(slots=True)
class HandedRows:
    """The rows of one task for the task writer of another sink; `record_count` have passed."""

    behind: TaskWriter
    task: int
    is_refused: Callable[[], bool]
    record_count: int = field(default=0, init=False)
    _written: bytes = field(default=b"", init=False)

    def take(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Hand all rows to the writer; if a row refuses the batch, it gets an error at their end."""

        def passed() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                self.record_count += batch.num_rows
                yield batch
            if self.is_refused():
                raise ValueError("a row refuses the batch")  # every writer removes its open files then

        try:
            self._written = self.behind.write(self.task, passed())
        except Exception:
            if not self.is_refused():
                raise

    def receipt(self, head: Receipt) -> bytes:
        """What was found in the rows, and what the writer returned, `together`."""
        return together([encode(head), self._written])


class TaskOutput(Protocol):
    """What a task writes: whole, or not at all."""

    def close(self) -> None:
        """Make it whole."""

    def abandon(self) -> None:
        """Remove what is not whole; never raises."""


@contextmanager
def whole_or_abandoned(written: Sequence[TaskOutput], is_refused: Callable[[], bool]) -> Iterator[None]:
    """Close what the block has written; abandon it after any other end of the block, and if its rows are refused."""
    is_whole = False
    try:
        yield
        if not is_refused():
            for each in written:
                each.close()
            is_whole = True
    finally:
        if not is_whole:
            for each in written:
                each.abandon()


@dataclass(slots=True)
class SideOutput:
    """The rows of one task for one side table, and their files.

    Attributes:
        made: Makes the rows, and counts and digests them.
        identity: The columns that tell a change, for dead letters; None if the task's rows are appended.
        joined: Changes that are in a dead letter with another one: those of an event that would have been two changes.
    """

    plan: SidePlan
    made: LetterRows | ChangelogRows
    files: TaskFiles
    identity: ChangeIdentity | None = None
    joined: int = field(default=0, init=False)
    _alignment: Alignment | None = field(default=None, init=False)

    def add(self, *made_of: Any) -> None:
        """Write rows."""
        rows = self.made.of(*made_of)
        if self._alignment is None:
            self._alignment = alignment_of(rows.schema, self.files.schema, self.plan.plan)
        self.files.add(self._alignment.apply(rows))

    def put_aside(self, rows: RowBatch, faults: Mapping[int, Fault]) -> None:
        """Write the rows at these positions as dead letters; one of an event that became two changes."""
        chosen = dict(sorted(zip(rows.positions(faults), faults, strict=True)))
        self.joined += len(rows.made_with(faults)) - len(chosen)
        told = {} if self.identity is None else self.identity.told(rows, list(chosen.values()))
        self.add(rows.came.take(pa.array(chosen, pa.int64())), [faults[at] for at in chosen.values()], told)

    def receipt(self, *, refused: bool) -> bytes:
        """The encoded receipt; a refused batch has nothing."""
        plan, rows = self.plan.plan, 0 if refused else self.made.count
        head = Receipt(self.files.task, rows, (), plan.schema_id, refused=refused, premises=plan.premises)
        return self.files.receipt(head if refused else replace(head, payload_digest=self.made.digest))
