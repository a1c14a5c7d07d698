"""The dead letters of one table that no replay has, as a stream: there may be more than fit into memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

import pyarrow as pa
from pyiceberg.expressions import And, EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table

from lakesink.rows.letters import LETTERS, letters_key
from lakesink.rows.side_rows import APPLICATION, application_of
from lakesink.sinks.iceberg.side.side_batches import SideBatch, all_batches, side_batches, states_letters
from lakesink_catalog.read.landed import Landed
from lakesink_protocol.errors import WriteError
from lakesink_protocol.identity import SinkKey, SinkKind

Wanted = Callable[[str, str, int], bool]
"""Chooses a letter by its id, sink and batch id."""
_IDENTITY = ("letter_id", "sink", "batch_id")
MOST_LETTERS = 100_000
MOST_BYTES = 64 * 1024 * 1024
"""Limits of one replay: its letters are in the driver's memory, before and after their repair."""


@dataclass
class OfTable:
    """The letters of one branch of a table, among those of other tables that may share the table of dead letters."""

    table: Table
    letters: Table
    branch: str
    _sinks: dict[str, "_BatchesOfSink"] = field(default_factory=dict, init=False)

    @cached_property
    def batches(self) -> Sequence[SideBatch]:
        """All batches with letters."""
        return list(all_batches(self.letters))

    @property
    def filter(self) -> And:
        """For a scan."""
        of = {"table_uuid": str(self.table.metadata.table_uuid), "branch": self.branch}
        uuid, branch = (EqualTo(term=Reference(name), value=literal(value)) for name, value in of.items())
        return And(uuid, branch)

    def is_complete(self, letter: str, sink: str, batch_id: int) -> bool:
        """True if the table has the batch of a letter: letters commit first, and its driver may never come back."""
        return self._of(sink).has(letter[:APPLICATION], batch_id)

    def are_complete(self, letters: pa.Table) -> bool:
        """True if the table has the batches of all these letters."""
        return all(map(self.is_complete, *(letters[name].to_pylist() for name in _IDENTITY)))

    def landed(self, letter: str, sink: str) -> Landed:
        """The batches of the sink that put a letter aside: a stream, or an application of `lakesink.append`."""
        return self._of(sink).landed(letter[:APPLICATION])

    def _of(self, sink: str) -> "_BatchesOfSink":
        if sink not in self._sinks:
            self._sinks[sink] = _BatchesOfSink(self, sink)
        return self._sinks[sink]


class _BatchesOfSink:
    """The batches of one sink that have letters, by the application that wrote them."""

    def __init__(self, of: OfTable, sink: str) -> None:
        self._letters, self._table_uuid = of.letters, str(of.table.metadata.table_uuid)
        self._landed = [Landed(of.table, SinkKey(sink, of.branch, kind)) for kind in SinkKind]
        self._after: dict[tuple[str, int], int] = {}
        self._queries: dict[str, tuple[Landed, str]] = {}
        self.has = cache(self._has)
        for landed in self._landed:
            for one in side_batches(of.batches, letters_key, landed.key, self._table_uuid):
                application = application_of(one.key)
                self._after.setdefault((application, one.batch_id), one.after)
                self._queries[application] = landed, one.query_id

    def landed(self, application: str) -> Landed:
        """The batches of the sink that wrote a letter whose batch is complete."""
        return self._queries[application][0]

    def _has(self, application: str, batch_id: int) -> bool:
        """False if the table lacks a batch with these letters, or was rolled back and does not tell how far."""
        # otherwise expiry may have hidden it; after a rollback, the batch may come again
        if application not in self._queries:
            return False
        landed, query_id = self._queries[application]
        has = landed.has(query_id, batch_id, self._after.get((application, batch_id)))
        if has is None:
            has = not landed.may_lack_all
        return has and states_letters(landed, self._letters, query_id, batch_id)


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
    return WriteError.of("SCHEMA_MISMATCH.no_letters", table=".".join(letters.name()), why=why)
