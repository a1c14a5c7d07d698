"""What is counted in the rows of a batch, each fact declared once. Pure; executors import this.

Who counts a fact names its measure. Receipts, records, summaries, events, history, audit and commands carry all counts
together, and show them by this table.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Measure(NamedTuple):
    """One counted fact. Counts of tasks and of batches are added.

    Attributes:
        name: In JSON and in log lines.
        key: Property of a snapshot's summary; absent if the count is 0.
        word: What one of them is called; empty if people are not told.
        said: How an audit tells the `count`, or so many `values`, of the `rows` in the table or of those that were
            `read`, dead letters too.
        is_of_rows: True if a row has it at most once, so that there are never more than rows.
    """

    name: str
    key: str = ""
    word: str = ""
    said: str = ""
    is_of_rows: bool = True


UNKNOWN_KEYS = Measure(
    *("unknown_keys", "lakesink.unknown-keys", "unknown key"),
    "Of the documents that were looked at, {values} had no column in the table and were left out.",
    is_of_rows=False,
)
"""Values, but NULL, of keys without a column, in a sample: the first thousand documents of every 16 MiB."""
UNMET_ROWS = Measure(
    *("unmet_rows", "lakesink.unmet-rows", "unmet row"),
    "{count} of {read} did not meet an expectation of the query; lakesink quality shows which.",
)
"""Rows that did not meet at least one expectation."""
DEAD_LETTERS = Measure(
    *("dead_letters", "lakesink.dead-letters", "dead letter"),
    "{count} of {read} became dead letters; lakesink dead-letters shows those that were not replayed.",
)
"""Rows that are not in the table, but in its table of dead letters."""
RESCUED_ROWS = Measure(
    *("rescued_rows", "lakesink.rescued-rows", "rescued row"),
    "{count} of {rows} have a text in the rescue column: a part of their document has no column, or does not fit it.",
)
UNREAD_BEFORE = Measure("unread_before", "lakesink.unread-rows-before")
"""Deletes whose row before has values that do not fit their columns; a changelog has NULL for them."""
MEASURES = UNKNOWN_KEYS, UNMET_ROWS, DEAD_LETTERS, RESCUED_ROWS, UNREAD_BEFORE
TOLD = tuple(one for one in MEASURES if one.word)


class Tally(dict[Measure, int]):
    """How often each fact was found, as a value that nobody changes. What was not found is left out, and read as 0."""

    __slots__ = ()

    def __init__(self, found: Mapping[Measure, int] | Iterable[tuple[Measure, int]] = ()) -> None:
        super().__init__((one, count) for one, count in dict(found).items() if count)

    def __missing__(self, _: Measure) -> int:
        return 0

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    @classmethod
    def total(cls, parts: Iterable["Tally"]) -> "Tally":
        """The sums of all parts."""
        return cls(sum(map(Counter, parts), Counter[Measure]()))

    @property
    def told(self) -> dict[str, int]:
        """What people are told, by name and also 0."""
        return {one.name: self[one] for one in TOLD}
