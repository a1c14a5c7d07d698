"""Expectations: conditions on rows that Spark evaluates, and that a task counts while it writes. Imports PyArrow only.

A row arrives with a *mark* for each expectation: a BOOLEAN column after its own columns, true if the row meets it. The
name of the column has the name of the expectation and what happens to a batch with other rows, so a task writer needs
nothing else. Marks are never written.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from lakesink_protocol.measures import UNMET_ROWS, Tally
from lakesink_protocol.quality import EXPECTATION_NAME, MOST_EXPECTATIONS, Quality

_PREFIX = "_lakesink_expect_"


class OnUnmet(StrEnum):
    """What happens to a batch with rows that do not meet an expectation."""

    WARN = "warn"
    QUARANTINE = "quarantine"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Expected:
    """One expectation of the rows of a batch."""

    name: str
    on_unmet: OnUnmet

    @property
    def mark(self) -> str:
        """Name of the column with the marks."""
        return f"{_PREFIX}{self.on_unmet}_{self.name}"


def is_mark(column: str) -> bool:
    """True if only `with_expectations` may use this name of a column."""
    return column.startswith(_PREFIX)


def expected_in(schema: pa.Schema) -> tuple[Expected, ...]:
    """The expectations of rows of this schema, by its marks; raises ValueError for a mark of another maker."""
    found = []
    for column in schema:
        if not is_mark(column.name):
            continue
        action, _, name = column.name.removeprefix(_PREFIX).partition("_")
        if column.type != pa.bool_() or action not in tuple(OnUnmet) or not EXPECTATION_NAME.fullmatch(name):
            raise ValueError(f"the column {column.name!r} is no expectation")
        found.append(Expected(name, OnUnmet(action)))
    if len(found) > MOST_EXPECTATIONS:
        raise ValueError(f"there are {len(found)}, and {MOST_EXPECTATIONS} are possible")
    if len({one.name for one in found}) != len(found):
        raise ValueError("two have the same name")
    return tuple(found)


def without_marks(schema: pa.Schema) -> pa.Schema:
    """The schema of the rows alone."""
    return pa.schema([field for field in schema if not is_mark(field.name)], schema.metadata)


@dataclass(slots=True)
class Marks:
    """Takes the marks off the rows of one task, and counts the rows that do not meet an expectation.

    Attributes:
        unmet: Rows by the name of the expectation.
        unmet_rows: Rows that do not meet at least one of them.
    """

    expected: Sequence[Expected]
    unmet: Counter[str] = field(default_factory=Counter)
    unmet_rows: int = 0

    @property
    def refuse(self) -> bool:
        """True once a row must fail the batch."""
        return any(self.unmet[one.name] and one.on_unmet is OnUnmet.FAIL for one in self.expected)

    @property
    def quality(self) -> Quality:
        """The counts, also of expectations that every row met."""
        unmet = {one.name: self.unmet[one.name] for one in self.expected}
        return Quality(Tally({UNMET_ROWS: self.unmet_rows}), unmet=unmet)

    def unmet_of(self, batch: pa.RecordBatch) -> dict[int, tuple[str, ...]]:
        """The expectations that put rows aside, by the positions of these rows."""
        found: dict[int, tuple[str, ...]] = {}
        for one in self.expected:
            met = batch.column(one.mark) if one.on_unmet is OnUnmet.QUARANTINE else None
            if met is not None and met.true_count < batch.num_rows:
                for at in pc.indices_nonzero(pc.invert(pc.fill_null(met, fill_value=False))).to_pylist():
                    found[at] = (*found.get(at, ()), one.name)
        return found

    def taken_off(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows alone; their marks are counted."""
        if not self.expected:
            return batch
        marks = [batch.column(one.mark) for one in self.expected]
        for one, met in zip(self.expected, marks, strict=True):
            self.unmet[one.name] += batch.num_rows - met.true_count
        self.unmet_rows += batch.num_rows - reduce(pc.and_, marks).true_count
        return batch.select([name for name in batch.schema.names if not is_mark(name)])
