"""Rows that identify their origin: their batch, and a position that no other run, task or attempt has."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

ROWS = pa.schema([("batch", pa.int64()), ("position", pa.int64())])
"""The schema of the suite's rows: two columns of whole numbers."""

MOST_ROWS = 100
_MOST_ATTEMPTS = 10
_MOST_TASKS = 1000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one task, and its rows."""

    batch_id: int
    run: int  # number of the job, over all batches
    task: int = 0
    number: int = 0  # number of the attempt, from 0
    rows: int = 4  # number of rows

    @property
    def positions(self) -> range:
        """The positions in its rows."""
        first = ((self.run * _MOST_TASKS + self.task) * _MOST_ATTEMPTS + self.number) * MOST_ROWS
        return range(first, first + self.rows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows: two Arrow batches for two or more rows, none for no rows."""
        half = self.rows // 2
        for positions in filter(None, (self.positions[:half], self.positions[half:])):
            yield pa.record_batch([[self.batch_id] * len(positions), list(positions)], schema=ROWS)


SeenRows = dict[int, Counter[int]]
"""Positions by batch, each with its number of occurrences."""


def count_positions(rows: Iterable[tuple[int, int]]) -> SeenRows:
    """Count the rows of a reader by batch; rows are (batch, position)."""
    found: SeenRows = {}
    for batch_id, position in rows:
        found.setdefault(int(batch_id), Counter())[int(position)] += 1
    return found


def wrong_rows(found: SeenRows, candidates: dict[int, list[frozenset[int]]], batches: Iterable[int]) -> str:
    """The error in the rows of a reader; empty if these are exactly the given batches, each whole, each row once.

    `candidates` has the positions that each job of a batch voted for.
    """
    wanted = set(batches)
    unwanted = sorted(set(found) - wanted)
    if unwanted:
        return f"readers see rows of batch {unwanted[0]}, which is not committed"
    for batch_id in sorted(wanted):
        seen = found.get(batch_id, Counter())
        doubled = [position for position, count in seen.items() if count > 1]
        if doubled:
            return f"{len(doubled)} of {len(seen)} rows of batch {batch_id} are visible twice or more"
        if frozenset(seen) not in candidates.get(batch_id, []):
            return f"batch {batch_id} contains {_compared(frozenset(seen), candidates.get(batch_id, []))}"
    return ""


def _compared(seen: frozenset[int], jobs: list[frozenset[int]]) -> str:
    found = [f"{len(seen & job)} of the {len(job)} rows that job {number} voted for" for number, job in enumerate(jobs)]
    others = len(seen - frozenset().union(*jobs))
    return ", ".join([*found, f"{others} rows without a vote"] if others or not found else found)
