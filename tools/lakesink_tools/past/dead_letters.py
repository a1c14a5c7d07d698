"""Reads a table of dead letters, as a stream: it may be larger than memory."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table

_ORDER = [("found_at", "descending"), ("batch_id", "descending"), ("letter_id", "ascending")]
_COUNTED = ("sink", "reason", "column_name")
_OF = ("table_uuid", "branch")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters to read; None means any.

    Attributes:
        of: UUID of a table, and its branch: several tables can share one of dead letters.
        is_replayed: True for the id of a letter that does not count any more.
    """

    sink: str | None = None
    batch_id: int | None = None
    reason: str | None = None
    of: tuple[str, str] | None = None
    is_replayed: Callable[[str], bool] = field(default=lambda _: False, compare=False)

    @property
    def filter(self) -> BooleanExpression:
        """For a scan of the letters of all tables."""
        given = {"sink": self.sink, "batch_id": self.batch_id, "reason": self.reason}
        found: BooleanExpression = AlwaysTrue()
        for name, value in given.items():
            found = found if value is None else And(found, EqualTo(term=Reference(name), value=literal(value)))
        return found


@dataclass(frozen=True, slots=True)
class Reason:
    """Letters of one sink with one reason, and the column or expectation if there is one."""

    sink: str
    reason: str
    column: str
    letters: int  # those that were not replayed
    replayed: int


@dataclass(frozen=True, slots=True)
class LetterCounts:
    """How many letters there are, by sink and reason, the most first."""

    reasons: list[Reason]
    of_others: int  # letters of other tables and branches

    @property
    def letters(self) -> int:
        """Letters that were not replayed."""
        return sum(one.letters for one in self.reasons)

    @property
    def replayed(self) -> int:
        """Letters that were replayed."""
        return sum(one.replayed for one in self.reasons)


def count_by_reason(table: Table, wanted: Wanted) -> LetterCounts:
    """Count the letters of a table."""
    pending, replayed = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    of_others = 0
    for batch in _batches(table, wanted, (*_OF, "letter_id", *_COUNTED)):
        own = _own(batch, wanted)
        of_others += batch.num_rows - own.num_rows
        columns = [[value or "" for value in own.column(name).to_pylist()] for name in _COUNTED]
        for letter, key in zip(own.column("letter_id").to_pylist(), zip(*columns, strict=True), strict=True):
            (replayed if wanted.is_replayed(letter) else pending)[key] += 1
    ordered = sorted(pending | replayed, key=lambda key: (-pending[key], key))
    return LetterCounts([Reason(*key, pending[key], replayed[key]) for key in ordered], of_others)


def newest(table: Table, wanted: Wanted, most: int) -> list[dict[str, Any]]:
    """The newest letters that were not replayed, the newest first."""
    kept: pa.Table | None = None
    for batch in _batches(table, wanted, ("*",)):
        own = _own(batch, wanted)
        replayed = [wanted.is_replayed(letter) for letter in own.column("letter_id").to_pylist()]
        found = pa.Table.from_batches([own.filter(pc.invert(pa.array(replayed, pa.bool_())))])
        both = found if kept is None else pa.concat_tables([kept, found])
        kept = both.take(pc.sort_indices(both, sort_keys=_ORDER)[:most])
    return [] if kept is None else list(kept.to_pylist())


def _own(batch: pa.RecordBatch, wanted: Wanted) -> pa.RecordBatch:
    if wanted.of is None:
        return batch
    uuid, branch = (pc.equal(batch.column(name), value) for name, value in zip(_OF, wanted.of, strict=True))
    return batch.filter(pc.fill_null(pc.and_(uuid, branch), fill_value=False))


def _batches(table: Table, wanted: Wanted, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    yield from table.scan(row_filter=wanted.filter, selected_fields=columns).to_arrow_batch_reader()
