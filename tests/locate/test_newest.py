"""Of the changes of one key that came to several tasks, the newest counts, or the batch is refused."""

import random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

from lakesink.keys.key_columns import KeyColumns
from lakesink.keys.newest import CHANGE, Newest, newest_of_each_key
from lakesink_protocol.errors import WriteError
from tests.locate.builders import DELETE, SNAPSHOT, UPSERT, changes_table, columns_of

ORDERED = columns_of([LongType(), StringType()], [LongType(), StringType()])
UNORDERED = columns_of([LongType(), StringType()])
Row = tuple[Any, ...]


def of_tasks(columns: KeyColumns, *tasks: list[Row]) -> pa.Table:
    return pa.concat_tables(
        [
            changes_table(columns, rows).append_column("task", pa.array([task] * len(rows), pa.int32()))
            for task, rows in enumerate(tasks)
        ]
    )


def kept(found: Newest) -> set[int]:
    return set(found.changes[CHANGE].to_pylist())


def expected(rows: list[Row], columns: KeyColumns) -> set[int] | str:
    """The numbers of the changes that count, or the code of a refusal, with a dictionary."""
    by_key: dict[Any, list[int]] = {}
    for number, row in enumerate(rows):
        by_key.setdefault(row[:2], []).append(number)
    count = len(columns.sequences)
    found = set()
    for numbers in by_key.values():
        ranks = {n: (*rows[n][2 : 2 + count], rows[n][-3] != SNAPSHOT) if count else () for n in numbers}
        top = [n for n in numbers if ranks[n] == max(ranks.values())]
        places = {rows[n][-2] for n in top}
        offsets = sorted((rows[n][-1] for n in top), reverse=True) if None not in places else []
        if len(top) == 1 or all(rows[n][-3] == DELETE for n in top):
            found.add(top[0])
        elif len(places) == 1 and offsets and offsets[0] != offsets[1]:
            found.add(next(n for n in top if rows[n][-1] == offsets[0]))
        else:
            return "LAKESINK_SEQUENCE_TIED" if count else "LAKESINK_KEY_TWICE"
    return found


@pytest.mark.parametrize("columns", [ORDERED, UNORDERED], ids=["with a sequence", "without"])
@pytest.mark.parametrize("seed", range(150))
def test_the_newest_change_of_each_key_is_that_of_a_dictionary(columns: KeyColumns, seed: int) -> None:
    chance = random.Random(seed)
    count, range_of_keys = len(columns.sequences), chance.choice([3, 30])

    def row(key: int) -> Row:
        sequences = (chance.choice([-(2**63), 0, 2**63 - 1]), chance.choice(["", "a", "a\0"]))[:count]
        place = chance.choice([(None, None), (0, chance.randrange(50)), (chance.randrange(2), chance.randrange(50))])
        return (key, "k\0", *sequences, chance.choice([UPSERT, DELETE, SNAPSHOT]), *place)

    tasks = [
        [row(key) for key in chance.sample(range(range_of_keys), chance.randrange(3))]
        for _ in range(chance.randrange(1, 4))
    ]
    rows = [one for task in tasks for one in task]
    wanted = expected(rows, columns)
    if isinstance(wanted, str):
        with pytest.raises(WriteError, match=wanted):
            newest_of_each_key(of_tasks(columns, *tasks), columns)
        return
    found = newest_of_each_key(of_tasks(columns, *tasks), columns)
    if wanted != kept(found):  # of deletes in a tie, either may count
        assert all(rows[number][-3] == DELETE for number in wanted ^ kept(found))
    assert found.without_effect == len(rows) - len(kept(found))
    lost = [(number, row) for number, row in enumerate(rows) if number not in kept(found) and row[-3] != DELETE]
    task_of = [task for task, some in enumerate(tasks) for _ in some]
    masked = zip(found.masked["k1"].to_pylist(), found.masked["task"].to_pylist(), strict=True)
    assert sorted(masked) == sorted((row[0], task_of[number]) for number, row in lost)


def test_an_event_of_the_stream_is_newer_than_a_snapshot_row_of_its_sequence() -> None:
    changes = of_tasks(ORDERED, [(1, "", 5, "", SNAPSHOT, 0, 9)], [(1, "", 5, "", DELETE, 1, 1)])
    found = newest_of_each_key(changes, ORDERED)
    assert kept(found) == {1}
    assert found.masked.to_pylist() == [{"k1": 1, "k2": "", "task": 0}]


@pytest.mark.parametrize("columns", [ORDERED, UNORDERED], ids=["with a sequence", "without"])
def test_a_refusal_names_the_source_of_one_change_if_it_is_known(columns: KeyColumns) -> None:
    sequences = (7, "s")[: len(columns.sequences)]
    rows = [(1, "", *sequences, UPSERT, place, 5) for place in (3, 4)]
    with pytest.raises(WriteError, match=r"Two are at partition 3, offset 5 and partition 4, offset 5\."):
        newest_of_each_key(of_tasks(columns, *([one] for one in rows)), columns)


@pytest.mark.parametrize(("columns", "code"), [(ORDERED, "SEQUENCE_TIED"), (UNORDERED, "KEY_TWICE")])
def test_a_refusal_names_columns_and_no_values(columns: KeyColumns, code: str) -> None:
    sequences = (77, "secret")[: len(columns.sequences)]
    row = (4242, "hidden", *sequences, UPSERT, None, None)
    with pytest.raises(WriteError) as refused:
        newest_of_each_key(of_tasks(columns, [row], [row]), columns)
    assert refused.value.code == f"LAKESINK_{code}"
    assert "c1, c2" in str(refused.value)
    assert not any(value in str(refused.value) for value in ("4242", "hidden", "77", "secret"))


def test_a_million_changes_of_two_tasks_are_compared_without_python_objects() -> None:
    keys = columns_of([LongType()])
    one = pa.table(
        [pa.arange(0, 500_000), pa.repeat(pa.scalar(0, pa.int8()), 500_000), *[pa.arange(0, 500_000)] * 2],
        ["k1", "op", "place", "offset"],
    )
    tasks = [pa.repeat(pa.scalar(task, pa.int32()), 500_000) for task in range(2)]
    shifted = one.set_column(0, "k1", pa.arange(499_999, 999_999)).set_column(2, "place", one["offset"])
    parts = zip((one, shifted), tasks, strict=True)
    both = pa.concat_tables([table.append_column("task", task) for table, task in parts])
    with pytest.raises(WriteError) as refused:  # one key of both tasks, whose places differ
        newest_of_each_key(both, keys)
    assert "1 key (" in str(refused.value)
