"""Reads a table of dead letters, as a stream: it may be larger than memory."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table

_ORDER = [("found_at", "descending"), ("batch_id", "descending"), ("letter_id", "ascending")]
_COUNTED = ("sink", "reason", "column_name")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters to read; None means any."""

    sink: str | None = None
    batch_id: int | None = None
    reason: str | None = None

    @property
    def filter(self) -> BooleanExpression:
        """For a scan."""
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
    letters: int


def reasons(table: Table, wanted: Wanted) -> list[Reason]:
    """How many letters there are, by sink and reason, the most first."""
    found: Counter[tuple[str, str, str]] = Counter()
    for batch in _batches(table, wanted, _COUNTED):
        columns = [[value or "" for value in batch.column(name).to_pylist()] for name in _COUNTED]
        found.update(zip(*columns, strict=True))
    ordered = sorted(found.items(), key=lambda one: (-one[1], one[0]))
    return [Reason(sink, reason, column, letters) for (sink, reason, column), letters in ordered]


def newest(table: Table, wanted: Wanted, most: int) -> list[dict[str, Any]]:
    """The newest letters, the newest first."""
    kept: pa.Table | None = None
    for batch in _batches(table, wanted, ("*",)):
        both = (
            pa.Table.from_batches([batch]) if kept is None else pa.concat_tables([kept, pa.Table.from_batches([batch])])
        )
        kept = both.take(pc.sort_indices(both, sort_keys=_ORDER)[:most])
    return [] if kept is None else list(kept.to_pylist())


def _batches(table: Table, wanted: Wanted, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    yield from table.scan(row_filter=wanted.filter, selected_fields=columns).to_arrow_batch_reader()
