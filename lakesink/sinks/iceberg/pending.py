"""The dead letters of one table that no replay has, as a stream: there may be more than fit into memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.expressions import And, EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table

from lakesink.sinks.iceberg.side_table import newest_batch
from lakesink.writer.letters import LETTERS, letters_key
from lakesink_catalog.read.history import retained
from lakesink_catalog.read.view import view_table
from lakesink_protocol.errors import WriteError
from lakesink_protocol.identity import SinkKey, SinkKind

Wanted = Callable[[str, str, int], bool]
"""Chooses a letter by its id, sink and batch id."""
_IDENTITY = ("letter_id", "sink", "batch_id")
MOST_LETTERS = 100_000
MOST_BYTES = 64 * 1024 * 1024
"""Limits of one replay: its letters are in the driver's memory, before and after their repair."""


@dataclass(slots=True)
class OfTable:
    """The letters of one branch of a table, among those of other tables that may share the table of dead letters."""

    table: Table
    letters: Table
    branch: str
    _forgotten: frozenset[str] | None = None
    _open: dict[str, frozenset[int] | None] = field(default_factory=dict)

    @property
    def filter(self) -> And:
        """For a scan."""
        of = {"table_uuid": str(self.table.metadata.table_uuid), "branch": self.branch}
        uuid, branch = (EqualTo(term=Reference(name), value=literal(value)) for name, value in of.items())
        return And(uuid, branch)

    def is_complete(self, sink: str, batch_id: int) -> bool:
        """True if the table has the batch of a letter: letters commit first, and a batch may be written again."""
        if sink not in self._open:
            self._open[sink] = self._open_batches(sink)
        unknown = self._open[sink]
        return unknown is not None and batch_id not in unknown

    def _open_batches(self, sink: str) -> frozenset[int] | None:
        """Batches of a sink that have letters, and that the table lacks; None for all."""
        found = set()
        keys = [SinkKey(sink, self.branch, kind) for kind in SinkKind]
        entries = [(key, entry) for key in keys if (entry := view_table(self.table, key).entry) is not None]
        for key, entry in entries:
            newest = newest_batch(self.letters, letters_key(key, entry.query_id, str(self.table.metadata.table_uuid)))
            if newest is not None and newest.batch_id > entry.batch_id:
                found.add(newest.batch_id)
        if self._forgotten is None and not entries:
            self._forgotten = retained(self.table).forgotten
        known = bool(entries) or any(key.ledger_property in (self._forgotten or ()) for key in keys)
        return frozenset(found) if known else None


def check_letter_table(letters: Table) -> None:
    """Check that a table has the columns of dead letters; raises WriteError."""
    missing = [name for name in LETTERS.names if name not in letters.schema().column_names]
    if missing:
        raise _unsound(letters, f"it has no column {missing[0]}")


def count_letters(of: OfTable, wanted: Wanted) -> int:
    """The number of the letters of a table that `wanted` wants."""
    return sum(batch.num_rows for batch in _letters(of, wanted, _IDENTITY))


def _letters(of: OfTable, wanted: Wanted, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for batch in of.letters.scan(row_filter=of.filter, selected_fields=tuple(columns)).to_arrow_batch_reader():
        ids, sinks, batches = (batch.column(name).to_pylist() for name in _IDENTITY)
        if None in ids or None in sinks or None in batches:
            raise _unsound(of.letters, "it has a letter without letter_id, sink or batch_id")
        kept = pa.array([wanted(*one) for one in zip(ids, sinks, batches, strict=True)], pa.bool_())
        yield batch.select(columns).filter(kept)


def first_letters(
    of: OfTable, wanted: Wanted, most: int = MOST_LETTERS, most_bytes: int = MOST_BYTES
) -> pa.Table | None:
    """As many of the letters that `wanted` wants as one replay may have; None if there is none."""
    taken: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in _letters(of, wanted, LETTERS.names):
        fitting = batch.slice(0, most - rows)
        if fitting.num_rows:
            taken.append(fitting)
        rows, size = rows + fitting.num_rows, size + fitting.nbytes
        if rows >= most or size >= most_bytes:
            break
    if not rows:
        return None
    found = pa.Table.from_batches(taken)
    if len(set(found.column("letter_id").to_pylist())) != rows:
        raise _unsound(of.letters, "it has a letter_id twice")
    return found


def _unsound(letters: Table, why: str) -> WriteError:
    name = ".".join(letters.name())
    return WriteError(
        "SCHEMA_MISMATCH",
        f"The table {name} is no table of dead letters: {why}.",
        data="Nothing was replayed.",
        action="Name the table of dead letters: dead_letter_table, or --letters.",
    )
