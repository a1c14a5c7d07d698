"""Expectations: conditions on rows, and how a task counts the rows that do not meet them. Imports PyArrow only.

Spark evaluates those on rows with the table's columns. A row arrives with a *mark* for each expectation: a BOOLEAN
column after its own columns, true if the row meets it. The name of the column has the name of the expectation and what
happens to a batch with other rows, so a task writer needs nothing else. Marks are never written. Documents have no
columns yet where Spark sees them: tasks evaluate their conditions.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.rows.conditions import Condition
from lakesink.rows.letters import Fault
from lakesink.rows.scalars import FALSE
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
    """One expectation of the rows of a batch; `condition` is None if Spark has marked the rows."""

    name: str
    on_unmet: OnUnmet
    condition: Condition | None = None

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
class Unmet:
    """Counts the rows of one task that do not meet an expectation.

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

    def found(self, met: Sequence[pa.BooleanArray], never: pa.BooleanArray | None) -> dict[int, Fault]:
        """Count the rows for which an expectation is not true; those to put aside, by their positions.

        `met` has the values of each expectation. Rows for which `never` is true are not judged.
        """
        if not met:
            return {}
        wrong = [pc.invert(pc.fill_null(one, FALSE)) for one in met]
        if never is not None:
            wrong = [pc.and_not(one, never) for one in wrong]
        self.unmet_rows += reduce(pc.or_, wrong).true_count
        aside: dict[int, tuple[str, ...]] = {}
        for one, rows in zip(self.expected, wrong, strict=True):
            self.unmet[one.name] += rows.true_count
            for at in pc.indices_nonzero(rows).to_pylist() if one.on_unmet is OnUnmet.QUARANTINE else ():
                aside[at] = (*aside.get(at, ()), one.name)
        return {
            at: Fault("EXPECTATION_UNMET", first, ", ".join(more) and f"also {', '.join(more)}")
            for at, (first, *more) in aside.items()
        }
