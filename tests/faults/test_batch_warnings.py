"""Which warnings a batch gives, and which of them only once in a run."""

from typing import Any

import pytest

from lakesink.rows.expectations import Expected, OnUnmet
from lakesink.sinks.iceberg.transaction import BatchWarnings
from lakesink_protocol import events
from lakesink_protocol.measures import DEAD_LETTERS, UNREAD_BEFORE, Tally
from lakesink_protocol.quality import Quality
from lakesink_protocol.row_changes import ChangeCounts

TABLE, SINK = "demo.events", "events"


@pytest.fixture
def told() -> list[events.Event]:
    return []


@pytest.fixture
def warnings(told: list[events.Event]) -> BatchWarnings:
    return BatchWarnings(TABLE, SINK, told.append, set())


@pytest.mark.parametrize(
    ("quality", "expected"),
    [
        (Quality(), []),
        (Quality(unmet={"warned": 0, "failed": 0, "aside": 0}), []),
        (Quality(unmet={"warned": 3, "failed": 4, "aside": 5}), [events.ExpectationsUnmet(7, TABLE, "warned 3")]),
        (Quality(unmet={"warned": 0, "failed": 4, "aside": 5}), []),
        (Quality(Tally({UNREAD_BEFORE: 2})), [events.RowsBeforeUnread(7, TABLE, 2)]),
        (Quality(Tally({DEAD_LETTERS: 2})), [events.RowsPutAside(7, TABLE, 2, "demo.letters")]),
    ],
)
def test_each_batch_with_such_rows_is_warned_of(
    warnings: BatchWarnings, told: list[events.Event], quality: Quality, expected: list[events.Event]
) -> None:
    rules = Expected("warned", OnUnmet.WARN), Expected("failed", OnUnmet.FAIL), Expected("aside", OnUnmet.QUARANTINE)
    unmet = quality.unmet or {one.name: 0 for one in rules}
    for _ in range(2):
        warnings.of_rows(7, Quality(quality.counts, unmet=unmet), rules, "demo.letters")
    assert told == expected * 2


def test_each_column_is_named_once_in_each_of_both_ways(warnings: BatchWarnings, told: list[events.Event]) -> None:
    warnings.of_columns(7, [], [])
    assert told == []
    warnings.of_columns(7, ["a", "b"], ["a"])
    warnings.of_columns(8, ["a", "b"], ["a"])
    warnings.of_columns(9, ["b", "c"], ["d"])
    assert told == [
        events.ColumnsMissing(7, TABLE, SINK, "a, b"),
        events.ColumnsIgnored(7, TABLE, SINK, "a"),
        events.ColumnsMissing(9, TABLE, SINK, "c"),
        events.ColumnsIgnored(9, TABLE, SINK, "d"),
    ]


@pytest.mark.parametrize("changes", [None, ChangeCounts(), ChangeCounts(late_upserts=3)])
def test_batches_without_late_deletes_are_no_reason_to_warn(
    warnings: BatchWarnings, told: list[events.Event], changes: Any
) -> None:
    warnings.of_changes(7, changes)
    assert told == []


def test_late_deletes_are_warned_of_once(warnings: BatchWarnings, told: list[events.Event]) -> None:
    for batch_id in (7, 8):
        warnings.of_changes(batch_id, ChangeCounts(late_deletes=batch_id))
    assert told == [events.DeletesLate(7, TABLE, 7)]


def test_keys_and_reasons_of_a_rescue_are_named_once(warnings: BatchWarnings, told: list[events.Event]) -> None:
    warnings.of_rows(7, Quality(), (), "")
    assert told == []
    warnings.of_rows(7, Quality(unknown_names=("a", "b"), rescued={"c: no column": 2}), (), "")
    warnings.of_rows(8, Quality(unknown_names=("a",), rescued={"c: no column": 2}), (), "")
    warnings.of_rows(9, Quality(unknown_names=("b", "d"), rescued={"c: no column": 2, "d: not INT": 1}), (), "")
    assert told == [
        events.KeysUnknown(7, TABLE, '["a","b"]'),
        events.RowsRescued(7, TABLE, "c: no column"),
        events.KeysUnknown(9, TABLE, '["d"]'),
        events.RowsRescued(9, TABLE, "d: not INT"),
    ]
