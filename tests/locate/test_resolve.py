"""What changes do to live rows is what a dictionary says."""

import random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

from lakesink.keys.key_columns import KeyColumns
from lakesink.keys.newest import CHANGE
from lakesink.keys.resolve import Resolution, resolve
from lakesink.keys.scan import found_schema
from lakesink_protocol.row_changes import ChangeCounts
from tests.locate.builders import DELETE, SNAPSHOT, UPSERT, columns_of

ORDERED = columns_of([LongType()], [LongType(), StringType()])
UNORDERED = columns_of([LongType()])
Live = tuple[Any, ...]
"""File, position, number of the change, sequences."""
NUMBERS, WORDS = [-(2**63), -1, 0, 2**63 - 1], ["", "a", "a\0", "b"]


def resolved(changes: list[Any], live: list[Live], ages: list[int], columns: KeyColumns) -> Resolution:
    """`changes` have an operation and sequences; the number of a change is its place."""
    sequences = {column.alias: [row[1 + at] for row in changes] for at, column in enumerate(columns.sequences)}
    table = pa.table(
        {
            CHANGE: pa.array(range(len(changes)), pa.int64()),
            "op": pa.array([row[0] for row in changes], pa.int8()),
            **{column.alias: pa.array(sequences[column.alias], column.arrow) for column in columns.sequences},
        }
    )
    schema = found_schema(columns)
    rows = [pa.array([row[at] for row in live], kind) for at, kind in enumerate(schema.types)]
    return resolve(table, pa.table(rows, schema=schema), pa.array(ages, pa.int64()), columns)


def rank(sequences: tuple[Any, ...]) -> tuple[Any, ...]:
    """NULL is the lowest."""
    return tuple((value is not None, value) for value in sequences)


def model(changes: list[Any], live: list[Live], ages: list[int]) -> tuple[set[tuple[int, int]], set[int], ChangeCounts]:
    removed: set[tuple[int, int]] = set()
    late: set[int] = set()
    counts = dict.fromkeys(ChangeCounts.__dataclass_fields__, 0)
    for number, (operation, *sequence) in enumerate(changes):
        rows = [row for row in live if row[2] == number]
        own, is_delete = rank(tuple(sequence)), operation == DELETE
        counts["deletes" if is_delete else "upserts"] += 1
        holding = [
            row
            for row in rows
            if sequence and (rank(row[3:]) > own or (rank(row[3:]) == own and operation == SNAPSHOT))
        ]
        if holding:
            late.add(number)
            stays = max(rows, key=lambda row: (rank(row[3:]), ages[row[0]], row[0], row[1]))
            rows = [row for row in rows if row is not stays]
            counts["late_deletes" if is_delete else "late_upserts"] += 1
            counts["healed"] += len(rows)
        elif rows:
            counts["deleted" if is_delete else "updated"] += 1
            counts["healed"] += len(rows) - 1
        else:
            counts["absent" if is_delete else "inserted"] += 1
        removed |= {row[:2] for row in rows}
    return removed, late, ChangeCounts(**counts)


@pytest.mark.parametrize("columns", [ORDERED, UNORDERED], ids=["with a sequence", "without"])
@pytest.mark.parametrize("seed", range(200))
def test_rows_late_changes_and_counts_are_those_of_a_dictionary(columns: KeyColumns, seed: int) -> None:
    chance, count = random.Random(seed), len(columns.sequences)
    changes = [
        (chance.choice([UPSERT, DELETE, SNAPSHOT]), *(chance.choice(NUMBERS), chance.choice(WORDS))[:count])
        for _ in range(chance.randrange(6))
    ]
    ages = [chance.randrange(3) for _ in range(3)]
    places = [(file, position) for file in range(3) for position in range(4)]
    live = [
        (
            *place,
            chance.randrange(len(changes)),
            *(chance.choice([*NUMBERS, None]), chance.choice([*WORDS, None]))[:count],
        )
        for place in chance.sample(places, chance.randrange(12))
        if changes
    ]
    found = resolved(changes, live, ages, columns)
    removed, late, counts = model(changes, live, ages)
    assert len(found.removed) == len(removed)
    assert {(row["file"], row["pos"]) for row in found.removed.to_pylist()} == removed
    assert set(found.late.to_pylist()) == late
    assert found.counts == counts
    assert found.counts.balanced
    assert found.counts.rows_removed == len(removed)
